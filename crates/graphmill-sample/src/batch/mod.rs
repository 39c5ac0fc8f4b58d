//! A batch: tensors side by side in one buffer, ready to be used or sent.

mod assemble;
mod layout;
mod pool;

use std::sync::Arc;

use graphmill_graph::DType;

use crate::law::BatchId;
use crate::plan::Plan;

pub use layout::{Entry, Field, Layout};
pub use pool::{Buffer, Pool, Slot};

/// A sampled batch. Its buffer goes back to its pool when it is dropped.
#[derive(Debug)]
pub struct Batch {
    id: BatchId,
    size: usize,
    plan: Arc<Plan>,
    layout: Layout,
    buffer: Buffer,
}

/// A tensor of a batch.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    /// Its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: &'a [u64],
    /// Its bytes, at a multiple of 64.
    pub bytes: &'a [u8],
}

impl Batch {
    /// A batch from its parts: the buffer is laid out as the layout says, by the plan.
    ///
    /// # Panics
    /// When the buffer has not the layout's size.
    pub fn new(id: BatchId, size: usize, plan: Arc<Plan>, layout: Layout, buffer: Buffer) -> Self {
        assert_eq!(buffer.bytes().len(), layout.bytes(), "a buffer has the size of its layout");
        Self { id, size, plan, layout, buffer }
    }

    /// Which batch it is.
    pub fn id(&self) -> BatchId {
        self.id
    }

    /// Distinct seeds that were asked for; pairs for links.
    pub fn batch_size(&self) -> usize {
        self.size
    }

    /// The plan it was made by, which knows the names of types and features.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Its tensors.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All tensors with the padding between them.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// All tensors, to be edited in place. Nobody else sees it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }

    /// What its tensors are, and where they lie.
    pub fn into_parts(self) -> (Layout, Buffer) {
        (self.layout, self.buffer)
    }

    /// A tensor, if the batch has it.
    pub fn tensor(&self, field: Field) -> Option<TensorView<'_>> {
        let entry = self.layout.entries().iter().find(|entry| entry.field == field)?;
        let bytes = &self.buffer.bytes()[entry.offset..entry.offset + entry.bytes];
        Some(TensorView { dtype: entry.dtype, shape: &entry.shape, bytes })
    }

    /// A tensor of 64-bit numbers; empty if the batch does not have it.
    pub fn ints(&self, field: Field) -> &[i64] {
        match self.tensor(field) {
            Some(tensor) if tensor.dtype == DType::I64 => bytemuck::cast_slice(tensor.bytes),
            _ => &[],
        }
    }

    /// How many edges it has.
    pub fn num_edges(&self) -> usize {
        (0..self.plan.walks.len()).map(|walk| self.ints(Field::Row(walk)).len()).sum()
    }

    /// How many nodes it has.
    pub fn num_nodes(&self) -> usize {
        (0..self.plan.nodes.len()).map(|place| self.ints(Field::Node(place)).len()).sum()
    }
}
