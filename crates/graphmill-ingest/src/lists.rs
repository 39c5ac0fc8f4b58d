//! placeholder
/// Which neighbour lists to store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Lists of sources per target (CSC), what message passing walks.
    #[default]
    In,
    /// Lists of targets per source (CSR).
    Out,
    /// Both, at twice the size.
    Both,
}
