//! The dataset: what a graph with its features, labels and splits is, how it lies on disk, and how it is read and
//! written.
//!
//! A dataset is a directory specified byte by byte in `docs/format.md`. [`Dataset::open`] maps it (or loads it into
//! RAM) and hands out views: per partition and edge type an [`Adjacency`] for each stored direction, per partition and
//! node type a [`NodeStore`]. [`DatasetWriter`] is the only door to make one. This crate knows nothing of threads
//! beyond a parallel loop, and nothing of the network.

#[cfg(target_endian = "big")]
compile_error!("graphmill maps little-endian arrays as they are; big-endian hosts are not supported");

mod adjacency;
pub mod alias;
mod array;
mod book;
mod checksum;
mod dataset;
mod dtype;
mod error;
mod fingerprint;
pub mod guard;
mod ids;
mod manifest;
mod nodes;
mod original;
pub mod path;
pub mod random;
mod region;
mod verify;
pub mod weights;
mod writer;

pub use adjacency::Adjacency;
pub use array::{Array, Tensor};
pub use book::{Book, BookBuilder, Location, OpenBook};
pub use checksum::Checksummer;
pub use dataset::{Dataset, EdgeStore, OpenOptions, Partition, Storage};
pub use dtype::DType;
pub use error::{Error, Result};
pub use fingerprint::Fingerprint;
pub use ids::{IdArray, IdSlice, IdWidth};
pub use manifest::{
    ArrayFile, BookInfo, Direction, EdgeRole, EdgeTypeInfo, EdgeTypeName, FeatureInfo, LabelInfo, LabelKind,
    MANIFEST_FILE, MAX_PARTS, Manifest, NodeTypeInfo, OriginalKind, Split, SplitSizes, check_name,
};
pub use nodes::NodeStore;
pub use original::{OriginalId, Originals};
pub use verify::Verified;
pub use writer::{ArrayWriter, DatasetWriter, Place, PlacedWriter, Replace};
