//! The proxy as a program in a container uses it: bytes on a Unix socket. The outside is a server of the test.

mod bounds;
mod hostile;
mod support;
mod usual;
