//! Transports: how frames and requests get from one member to another.
