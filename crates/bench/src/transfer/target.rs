//! The side that takes no part: an engine with one registered buffer.

use std::sync::Arc;

use yb_transfer::{Access, Engine, EngineSettings, MapError, MemorySegment, SegmentOptions, StartError};

/// An engine that serves a buffer until it is dropped.
#[derive(Debug)]
pub struct Target {
    engine: Engine,
    memory: Arc<MemorySegment>,
}

/// Why a target or an initiator could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// The engine did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No memory.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl Target {
    /// Starts the engine and registers `buffer_bytes`, every page touched.
    ///
    /// # Errors
    /// When an address is in use or memory is short.
    pub fn start(settings: EngineSettings, buffer_bytes: u64) -> Result<Self, SetUpError> {
        let engine = Engine::builder().settings(settings).build()?;
        let memory = engine.allocate(buffer_bytes, populated(), Access::Remote)?;
        Ok(Target { engine, memory })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The name to open.
    pub fn endpoint(&self) -> &str {
        self.engine.endpoint().unwrap_or_default()
    }

    /// First address of the buffer in this process.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }
}

/// Pages that are there before the first byte moves.
pub(crate) fn populated() -> SegmentOptions {
    SegmentOptions { populate: true, ..SegmentOptions::default() }
}
