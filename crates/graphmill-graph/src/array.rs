//! Typed views of a region: flat arrays and tensors of rows.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;

use crate::region::Region;
use crate::{DType, FeatureInfo};

/// A flat array of one partition; cheap to clone, dereferences to a slice.
#[derive(Debug, Clone)]
pub struct Array<T> {
    region: Arc<Region>,
    element: PhantomData<T>,
}

impl<T: Pod> Array<T> {
    /// Takes a region whose size is a whole number of elements.
    pub(crate) fn new(region: Region) -> Self {
        debug_assert_eq!(region.bytes().len() % size_of::<T>(), 0);
        Self { region: Arc::new(region), element: PhantomData }
    }

    /// The raw little-endian bytes.
    pub fn bytes(&self) -> &[u8] {
        self.region.bytes()
    }
}

impl<T: Pod> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // Regions are page-aligned and of a checked size, so the cast cannot fail.
        bytemuck::cast_slice(self.region.bytes())
    }
}

/// Rows of equal shape, one per node or edge of a partition: a feature or a label.
#[derive(Debug, Clone)]
pub struct Tensor {
    region: Arc<Region>,
    dtype: DType,
    shape: Vec<u64>,
    row_bytes: usize,
    rows: usize,
}

impl Tensor {
    /// Takes a region of exactly `rows` rows.
    pub(crate) fn new(region: Region, info: &FeatureInfo, rows: usize) -> Self {
        let row_bytes = info.row_bytes().unwrap_or_default() as usize;
        debug_assert_eq!(region.bytes().len(), rows * row_bytes);
        Self { region: Arc::new(region), dtype: info.dtype, shape: info.shape.clone(), row_bytes, rows }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape of one row.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// The bytes of one row, if there is one.
    pub fn row(&self, row: usize) -> Option<&[u8]> {
        let start = row.checked_mul(self.row_bytes)?;
        (row < self.rows).then(|| self.bytes().get(start..start + self.row_bytes)).flatten()
    }

    /// All bytes, rows one after the other.
    pub fn bytes(&self) -> &[u8] {
        self.region.bytes()
    }
}
