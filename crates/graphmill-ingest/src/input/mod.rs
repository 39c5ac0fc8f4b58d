//! Input files of any supported kind as a stream of typed column chunks.
