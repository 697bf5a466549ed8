//! The side that takes no part: an engine with one registered buffer.

use std::sync::Arc;

use yb_transfer::{
    Access, Engine, EngineSettings, ForeignMemory, MapError, MemorySegment, RegistryError, SegmentOptions, StartError,
};

/// An engine that serves a buffer until it is dropped.
#[derive(Debug)]
pub struct Target {
    engine: Engine,
    address: u64,
    /// Kept for as long as it is served; memory that peers cannot map is never given back.
    _memory: Option<Arc<MemorySegment>>,
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
    /// The memory could not be registered.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Target {
    /// Starts the engine and registers `buffer_bytes`, every page touched.
    ///
    /// # Errors
    /// When an address is in use or memory is short.
    pub fn start(settings: EngineSettings, buffer_bytes: u64) -> Result<Self, SetUpError> {
        let engine = Engine::builder().settings(settings).build()?;
        let memory = engine.allocate(buffer_bytes, populated(), Access::Remote)?;
        Ok(Target { engine, address: memory.address(), _memory: Some(memory) })
    }

    /// As [`Target::start`], with memory that peers cannot map, as an application's own allocation is. It stays with the
    /// process for ever.
    ///
    /// # Errors
    /// As there.
    pub fn start_unmappable(settings: EngineSettings, buffer_bytes: u64) -> Result<Self, SetUpError> {
        let engine = Engine::builder().settings(settings).build()?;
        let memory = ForeignMemory::leaked(buffer_bytes as usize);
        let address = memory.address();
        engine.register_memory(memory, Access::Remote)?;
        Ok(Target { engine, address, _memory: None })
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
        self.address
    }
}

/// Pages that are there before the first byte moves.
pub(crate) fn populated() -> SegmentOptions {
    SegmentOptions { populate: true, ..SegmentOptions::default() }
}
