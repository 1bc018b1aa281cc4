//! Stories with failpoints in this process, apart from those of `store`, which would meet them: a failpoint is one for all tests of a program.

mod moves;
mod records;
