//! Content that is unpacked from a file, as much as the file's bytes may stand for.
//!
//! Compression turns a thousand equal events into a few bytes, so a small file can
//! ask for hours of reading. Recordings of real programs have up to a hundred bytes of
//! content for each byte of their file; a reader takes what [`Limit`] says and refuses
//! the rest. Every writer of this crate stays within half of that, however regular its
//! events are.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// More content than the file's bytes may stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("more than {limit_bytes} bytes of content in {file_bytes} bytes of the file")]
pub(crate) struct TooMuch {
    pub(crate) limit_bytes: u64,
    pub(crate) file_bytes: u64,
}

impl TooMuch {
    /// The error that a failed read was, if it was this one.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// The most content that a file may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Bytes of content that a file of any length may have.
    pub free_bytes: u64,
    /// Bytes of content for each byte of a longer one.
    pub ratio: u64,
}

impl Limit {
    /// Limit of what is read as a stream.
    pub const STREAM: Self = Self { free_bytes: 64 << 20, ratio: 1024 };

    /// The most bytes of content in a file of so many bytes.
    pub const fn content_bytes(self, file_bytes: u64) -> u64 {
        let limit = file_bytes.saturating_mul(self.ratio);
        if limit > self.free_bytes { limit } else { self.free_bytes }
    }
}

/// Counts the bytes that were read or written.
pub(crate) struct Counted<T> {
    inner: T,
    bytes: Arc<AtomicU64>,
}

impl<T> Counted<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, bytes: Arc::default() }
    }

    /// The count, which goes on while this is used.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(to)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(from)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Content within its limit. Reading beyond it is an error ([`TooMuch`]).
pub(crate) struct Bounded<R> {
    content: R,
    limit: Limit,
    file_bytes: Arc<AtomicU64>,
    done_bytes: u64,
}

impl<R: Read> Bounded<R> {
    pub(crate) fn new(content: R, limit: Limit, file_bytes: Arc<AtomicU64>) -> Self {
        Self { content, limit, file_bytes, done_bytes: 0 }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(to)?;
        self.done_bytes += count as u64;
        if self.done_bytes > self.limit.free_bytes {
            let file_bytes = self.file_bytes.load(Ordering::Relaxed);
            let limit_bytes = self.limit.content_bytes(file_bytes);
            if self.done_bytes > limit_bytes {
                return Err(io::Error::other(TooMuch { limit_bytes, file_bytes }));
            }
        }
        Ok(count)
    }
}

/// Content between two looks at the ratio.
const CHUNK_BYTES: usize = 64 << 10;

/// A block of zstd's takes as many bytes or more.
const BLOCK_BYTES: u64 = 4;

/// A zstd frame that no reader refuses for its ratio.
pub(crate) struct Packer<W: Write> {
    zstd: zstd::stream::write::Encoder<'static, Counted<W>>,
    file_bytes: Arc<AtomicU64>,
    content_bytes: u64,
    limit: Limit,
}

impl<W: Write> Packer<W> {
    /// `level` is zstd's, and `window_log2` that of its window.
    pub(crate) fn new(to: W, level: i32, window_log2: u32, limit: Limit) -> io::Result<Self> {
        let to = Counted::new(to);
        let file_bytes = to.counter();
        let mut zstd = zstd::stream::write::Encoder::new(to, level)?;
        zstd.include_checksum(true)?;
        zstd.window_log(window_log2)?;
        // A reader is refused at twice this.
        let limit = Limit { free_bytes: limit.free_bytes / 2, ratio: limit.ratio / 2 };
        Ok(Self { zstd, file_bytes, content_bytes: 0, limit })
    }

    /// Says how long the content will be.
    pub(crate) fn pledge(&mut self, content_bytes: u64) -> io::Result<()> {
        self.zstd.set_pledged_src_size(Some(content_bytes))
    }

    /// Adds content.
    pub(crate) fn push(&mut self, content: &[u8]) -> io::Result<()> {
        for chunk in content.chunks(CHUNK_BYTES) {
            self.content_bytes = self.content_bytes.saturating_add(chunk.len() as u64);
            let file_bytes = self.file_bytes.load(Ordering::Relaxed);
            if self.content_bytes <= self.limit.content_bytes(file_bytes) {
                self.zstd.write_all(chunk)?;
                continue;
            }
            for piece in chunk.chunks((BLOCK_BYTES * self.limit.ratio) as usize) {
                self.zstd.write_all(piece)?;
                self.zstd.flush()?;
            }
        }
        Ok(())
    }

    /// Ends the frame and gives the writer back.
    pub(crate) fn finish(self) -> io::Result<W> {
        let mut to = self.zstd.finish()?.inner;
        to.flush()?;
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most regular content there is, and content that becomes so.
    #[test]
    fn what_is_written_is_read() {
        let noise: Vec<u8> =
            (0..1u32 << 20).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        let small = Limit { free_bytes: 8 << 20, ratio: 8 };
        for (head, chunks, limit) in [
            (&[][..], 100, Limit::STREAM),
            (&noise[..], 300, Limit::STREAM),
            (&[][..], 20, small),
            (&noise[..], 20, small),
        ] {
            let mut packer = Packer::new(Vec::new(), 1, 23, limit).unwrap();
            packer.push(head).unwrap();
            let chunk = vec![7; 1 << 20];
            for _ in 0..chunks {
                packer.push(&chunk).unwrap();
            }
            let file = packer.finish().unwrap();
            let counted = Counted::new(&file[..]);
            let bytes = counted.counter();
            let zstd = zstd::stream::read::Decoder::new(counted).unwrap();
            let mut content = Bounded::new(zstd, limit, bytes);
            let all = io::copy(&mut content, &mut io::sink()).unwrap();
            assert_eq!(all, head.len() as u64 + (chunks << 20));
        }
    }

    #[test]
    fn what_stands_for_too_much_is_refused() {
        let limit = Limit { free_bytes: 1000, ratio: 10 };
        for (content, fits) in [(1000, true), (1001, false), (9_999, false)] {
            let counted = Counted::new(&[0u8; 100][..]);
            let bytes = counted.counter();
            bytes.store(100, Ordering::Relaxed);
            let mut content = Bounded::new(io::repeat(1).take(content), limit, bytes);
            let read = io::copy(&mut content, &mut io::sink());
            assert_eq!(read.is_ok(), fits);
            if let Err(error) = read {
                assert_eq!(
                    TooMuch::of(&error),
                    Some(TooMuch { limit_bytes: 1000, file_bytes: 100 })
                );
            }
        }
        assert_eq!(TooMuch::of(&io::ErrorKind::UnexpectedEof.into()), None);
    }
}
