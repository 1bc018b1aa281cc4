//! The proxy as a program in a container meets it: bytes on a Unix socket. The outside is a server of the test's own.

mod bounds;
mod hostile;
mod support;
mod usual;
