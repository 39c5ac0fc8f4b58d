//! Errors as Python knows them.

use std::any::Any;
use std::io::ErrorKind;

use graphmill_client::{Error as ClientError, Fault};
use graphmill_graph::Error as GraphError;
use graphmill_ingest::Error as IngestError;
use graphmill_net::Error as NetError;
use graphmill_objects::{Error as ObjectsError, ErrorKind as ObjectsKind};
use graphmill_rendezvous::client::Error as RendezvousError;
use graphmill_sample::Error as SampleError;
use pyo3::exceptions::{
    PyConnectionError, PyFileExistsError, PyFileNotFoundError, PyIndexError, PyKeyError, PyKeyboardInterrupt,
    PyMemoryError, PyOSError, PyPermissionError, PyRuntimeError, PyTimeoutError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::{create_exception, intern};

create_exception!(graphmill.rendezvous, RendezvousClosed, PyRuntimeError, "The run is closed, for good.");
create_exception!(
    graphmill.rendezvous,
    RendezvousGracefulExit,
    PyRuntimeError,
    "The run is closed, and this member was a spare that was never needed."
);
create_exception!(
    graphmill.rendezvous,
    RendezvousTimeout,
    PyTimeoutError,
    "No round that this member takes part in was complete in time."
);

/// Anything that can go wrong below the wall.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Ingest(#[from] IngestError),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// More than there is memory for.
    #[error("there is no memory for {rows} rows of {row_bytes} bytes; ask for fewer at a time")]
    Memory { rows: usize, row_bytes: usize },
    /// A signal came, and nobody waits any more.
    #[error("interrupted")]
    Interrupted,
    /// An argument that cannot be.
    #[error("{0}")]
    Argument(String),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match &error {
            Error::Argument(_) => PyValueError::new_err(text),
            Error::Memory { .. } => PyMemoryError::new_err(text),
            Error::Interrupted => PyKeyboardInterrupt::new_err(text),
            Error::Client(error) => of_client(error, text),
            Error::Graph(error) => of_graph(error, text),
            Error::Sample(error) => of_sample(error, text),
            Error::Ingest(error) => of_ingest(error, text),
            Error::Rendezvous(error) => of_rendezvous(error, text),
            Error::Objects(error) => of_objects(error),
            Error::Net(error) => match error {
                NetError::Address { .. } | NetError::Token(_) => PyValueError::new_err(text),
                NetError::File { path, .. } if !path.exists() => PyFileNotFoundError::new_err(text),
                NetError::File { .. } => PyOSError::new_err(text),
                _ => PyConnectionError::new_err(text),
            },
        }
    }
}

fn of_client(error: &ClientError, text: String) -> PyErr {
    match error {
        ClientError::Dataset(error) => of_graph(error, text),
        ClientError::Sample(error) => of_sample(error, text),
        ClientError::Options { .. }
        | ClientError::Servers { .. }
        | ClientError::Request { .. }
        | ClientError::State { .. } => PyValueError::new_err(text),
        ClientError::Denied { .. } => PyPermissionError::new_err(text),
        ClientError::Unavailable { .. } | ClientError::Refused { .. } => PyConnectionError::new_err(text),
        ClientError::Late { .. } => PyTimeoutError::new_err(text),
        ClientError::Batch { fault, .. } => match fault {
            Fault::Request => PyValueError::new_err(text),
            Fault::Memory => PyMemoryError::new_err(text),
            Fault::Server => PyRuntimeError::new_err(text),
        },
        ClientError::Panicked { .. } => report(&text),
    }
}

fn of_rendezvous(error: &RendezvousError, text: String) -> PyErr {
    match error {
        RendezvousError::Closed(_) => RendezvousClosed::new_err(text),
        RendezvousError::Exit(_) => RendezvousGracefulExit::new_err(text),
        RendezvousError::TimedOut { .. } | RendezvousError::NoMaster { .. } => RendezvousTimeout::new_err(text),
        RendezvousError::Lost(_) | RendezvousError::Unavailable { .. } | RendezvousError::Unserved { .. } => {
            PyConnectionError::new_err(text)
        }
        RendezvousError::Left(_) | RendezvousError::Joining(_) | RendezvousError::Host(_) => {
            PyRuntimeError::new_err(text)
        }
        RendezvousError::Denied { .. } => PyPermissionError::new_err(text),
        RendezvousError::Refused { .. } | RendezvousError::NoRun { .. } | RendezvousError::NoRound(_) => {
            PyValueError::new_err(text)
        }
        RendezvousError::NoValue(_) => PyTimeoutError::new_err(text),
        RendezvousError::NoKey(_) => PyKeyError::new_err(text),
    }
}

/// What `docs/objects.md` has a line for; `kind` tells those apart that Python has one class for.
pub(crate) fn of_objects(error: &ObjectsError) -> PyErr {
    let text = error.to_string();
    let kind = error.kind();
    let made = match kind {
        ObjectsKind::Timeout => PyTimeoutError::new_err(text),
        ObjectsKind::Unreachable | ObjectsKind::Start => PyConnectionError::new_err(text),
        ObjectsKind::TooLarge | ObjectsKind::BadKey | ObjectsKind::Config => PyValueError::new_err(text),
        ObjectsKind::OverBudget => PyMemoryError::new_err(text),
        ObjectsKind::Denied => PyPermissionError::new_err(text),
        ObjectsKind::Refused => PyRuntimeError::new_err(text),
        ObjectsKind::Interrupted => PyKeyboardInterrupt::new_err(text),
    };
    Python::attach(|py| {
        // Every exception takes attributes; without this one it still says what happened.
        let _ = made.value(py).setattr(intern!(py, "kind"), kind.name());
    });
    made
}

fn of_sample(error: &SampleError, text: String) -> PyErr {
    match error {
        SampleError::Config { .. } | SampleError::TooLarge { .. } => PyValueError::new_err(text),
        SampleError::Memory { .. } => PyMemoryError::new_err(text),
        SampleError::Dataset(error) => of_graph(error, text),
        SampleError::Unowned { .. } => PyConnectionError::new_err(text),
        SampleError::Answer { .. } | SampleError::Stopped { .. } => PyRuntimeError::new_err(text),
    }
}

fn of_graph(error: &GraphError, text: String) -> PyErr {
    match error {
        GraphError::Io { source, .. } => of_io(source.kind(), text),
        GraphError::NotADataset { path } if path.exists() => PyValueError::new_err(text),
        GraphError::NotADataset { path } => {
            PyFileNotFoundError::new_err(format!("there is no dataset at {}: no such directory", path.display()))
        }
        GraphError::Exists { path } => {
            PyFileExistsError::new_err(format!("{} exists already; remove it or choose another place", path.display()))
        }
        GraphError::OutOfRange { .. } => PyIndexError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

fn of_ingest(error: &IngestError, text: String) -> PyErr {
    match error {
        IngestError::Dataset(error) => of_graph(error, text),
        IngestError::Io { source, .. } => of_io(source.kind(), text),
        IngestError::Interrupted | IngestError::DownloadInterrupted => PyKeyboardInterrupt::new_err(text),
        IngestError::Fetch { .. } => PyConnectionError::new_err(text),
        IngestError::Config { .. }
        | IngestError::BadRow { .. }
        | IngestError::Input { .. }
        | IngestError::Option(_) => PyValueError::new_err(text),
    }
}

fn of_io(kind: ErrorKind, text: String) -> PyErr {
    match kind {
        ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
        ErrorKind::AlreadyExists => PyFileExistsError::new_err(text),
        ErrorKind::PermissionDenied => PyPermissionError::new_err(text),
        _ => PyOSError::new_err(text),
    }
}

/// A bug, told to the user.
fn report(text: &str) -> PyErr {
    PyRuntimeError::new_err(format!("{text}; this is a bug in graphmill, please report it"))
}

/// What a panic becomes: an error that ordinary handlers see.
pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    report(&format!("something panicked: {}", text.unwrap_or("it said nothing")))
}
