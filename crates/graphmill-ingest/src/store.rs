//! Object stores: what a URL may be, how its store is opened and waited for, and how messages speak of it.
//!
//! Stores take their settings from their usual environment variables (`AWS_…`, `GOOGLE_…`, `AZURE_…`). No message
//! repeats a password.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use tokio::runtime::Runtime;
use url::Url;

use crate::{Error, Job, Result};

/// How long a store may be silent.
const PATIENCE: Duration = Duration::from_secs(60);
/// How soon a cancelled job is noticed while a store is silent.
const CANCEL_CHECK: Duration = Duration::from_millis(200);
/// The stores' variables; others, such as `TIMEOUT`, are not meant for us.
const VARIABLES: [&str; 3] = ["aws_", "google_", "azure_"];

/// Reads a URL that can be fetched from.
pub(crate) fn parse(text: &str) -> Result<Url> {
    // The text of an unparsable URL may hold credentials, so the message must not repeat it.
    let url = Url::parse(text).map_err(|error| Error::input("a URL", format!("cannot be read: {error}")))?;
    let name = without_credentials(&url);
    match url.scheme() {
        "file" if url.to_file_path().is_err() => {
            Err(Error::input(name, "a file URL needs an absolute path, as in file:///data/edges.csv"))
        }
        "file" => Ok(url),
        "s3" | "s3a" | "gs" | "az" | "adl" | "azure" | "abfs" | "abfss" | "http" | "https" => {
            if url.query().is_some() {
                let reason = "URLs with a query, such as presigned ones, are not supported; \
                              use the store's own URL (s3://, gs://, az://), or fetch the file beforehand";
                return Err(Error::input(name, reason));
            }
            Ok(url)
        }
        other => {
            let reason = format!("{other}:// is not supported; use a path, file, s3, gs, az, http or https");
            Err(Error::input(name, reason))
        }
    }
}

/// The store of a URL, and where in it the URL points.
pub(crate) fn open(url: &Url) -> Result<(Box<dyn ObjectStore>, object_store::path::Path)> {
    let variables = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?.to_ascii_lowercase(), value.into_string().ok()?)))
        .filter(|(key, _)| VARIABLES.iter().any(|prefix| key.starts_with(prefix)));
    // A request may take as long as its file is large; `patiently` watches for silence instead.
    let mut options = vec![("timeout".to_owned(), "7days".to_owned())];
    if url.scheme() == "http" {
        options.push(("allow_http".to_owned(), "true".to_owned()));
    }
    object_store::parse_url_opts(url, options.into_iter().chain(variables)).map_err(|error| fetch_error(url, &error))
}

/// What drives requests: one thread, the caller's.
pub(crate) fn runtime(url: &Url) -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| failed(url, format!("cannot start the network runtime: {error}")))
}

/// Waits for the store, but not for ever, and not after the job was cancelled.
pub(crate) async fn patiently<F: Future>(job: &Job<'_>, url: &Url, answer: F) -> Result<F::Output> {
    let mut answer = pin!(answer);
    let start = Instant::now();
    loop {
        if let Ok(answer) = tokio::time::timeout(CANCEL_CHECK, answer.as_mut()).await {
            return Ok(answer);
        }
        job.check()?;
        if start.elapsed() > PATIENCE {
            let reason = format!("no answer for {} s; check the network, {}", PATIENCE.as_secs(), settings(url));
            return Err(failed(url, reason));
        }
    }
}

/// What a store's refusal means.
pub(crate) fn fetch_error(url: &Url, error: &object_store::Error) -> Error {
    use object_store::Error as Store;
    match error {
        Store::NotFound { .. } => failed(url, "it does not exist; check the bucket and the path"),
        _ => failed(url, format!("{error}; check {}", settings(url))),
    }
}

/// A URL that could not be fetched.
pub(crate) fn failed(url: &Url, reason: impl Into<String>) -> Error {
    let mut reason = reason.into();
    for secret in [url.password(), Some(url.username())].into_iter().flatten().filter(|secret| !secret.is_empty()) {
        reason = reason.replace(secret, "***");
    }
    Error::Fetch { url: without_credentials(url), reason }
}

/// The URL for messages: no user, no password, no query.
pub(crate) fn without_credentials(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs that cannot have them.
    let _ = url.set_password(None);
    // In abfs://container@account/ the user is the container, which a message needs.
    if matches!(url.scheme(), "http" | "https") {
        let _ = url.set_username("");
    }
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// What decides whether a store answers, with the variables that say it.
fn settings(url: &Url) -> &'static str {
    match url.scheme() {
        "file" => "the path and its permissions",
        "http" | "https" => "the address and the credentials",
        "gs" => "the credentials in the environment (GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT)",
        "s3" | "s3a" => {
            "the endpoint, the region and the credentials in the environment \
             (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
        }
        _ => {
            "the account and the credentials in the environment \
             (AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY)"
        }
    }
}
