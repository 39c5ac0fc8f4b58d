//! What a tensor is to its nodes or edges, and what follows for its rows.

use graphmill_graph::{DType, LabelKind, weights};

use super::config::TensorConfig;
use super::rows::{NO_LABEL, ZEROS};

/// What a tensor is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Role {
    Feature,
    Label(LabelKind),
    Weights,
    Timestamps,
}

impl Role {
    /// What stands in the rows of nodes that have none. A float label of these bits is NaN, which is no class either.
    pub(super) fn fill(self) -> u8 {
        match self {
            Self::Label(LabelKind::Single) => NO_LABEL,
            Self::Label(LabelKind::Multi) | Self::Feature | Self::Weights | Self::Timestamps => ZEROS,
        }
    }

    /// The element type to read a tensor as: classes are whole numbers unless told otherwise.
    pub(super) fn dtype(self, tensor: &TensorConfig) -> Option<DType> {
        match self {
            Self::Weights => Some(DType::F32),
            Self::Timestamps => Some(DType::I64),
            Self::Label(LabelKind::Single) => tensor.dtype.or(Some(DType::I64)),
            Self::Label(LabelKind::Multi) | Self::Feature => tensor.dtype,
        }
    }

    /// Why a row of numbers that could be read is refused all the same.
    pub(super) fn fault(self, row: &[u8]) -> Option<String> {
        match self {
            Self::Weights => row.as_chunks().0.iter().find_map(|bytes| weight_fault(f32::from_le_bytes(*bytes))),
            Self::Feature | Self::Label(_) | Self::Timestamps => None,
        }
    }
}

/// Why a number cannot be a weight.
pub(super) fn weight_fault(number: f32) -> Option<String> {
    (!weights::is_weight(number)).then(|| format!("weight {number} is not a finite number of at least 0"))
}
