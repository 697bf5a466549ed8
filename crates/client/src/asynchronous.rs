//! The calls of a client for callers that must not block. Arguments are owned, answers are futures.

use yb_types::ReplicateConfig;

use crate::executor::Pending;
use crate::ops::{Lookup, PutOutcome};
use crate::{Client, MemoryRange, Result};

/// A client whose calls return futures; see [`Client`] for what each does. The futures need no particular runtime.
///
/// A call runs whether or not its future is polled. Registered memory that a call names stays registered until it ends.
///
/// ```
/// use yb_client::{AsyncClient, Client, PutOutcome, Result};
/// use yb_types::ReplicateConfig;
///
/// async fn copy(pool: &AsyncClient, from: &str, to: &str) -> Result<PutOutcome> {
///     let value = pool.get(from.into()).await?;
///     pool.put(to.into(), value, ReplicateConfig::default()).await
/// }
/// # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// # let master = yb_master::Master::start(yb_master::MasterConfig::embedded())?;
/// # let address = master.rpc_address().to_string();
/// # let client = Client::builder().local_hostname("127.0.0.1").master(address).segment(64 << 20).connect()?;
/// # client.put("a", b"value", &ReplicateConfig::default())?;
/// // Any runtime will do; this one polls until the work is done.
/// let pool = client.asynchronous();
/// let mut copied = std::pin::pin!(copy(&pool, "a", "b"));
/// let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// while copied.as_mut().poll(&mut context).is_pending() {
///     std::thread::yield_now();
/// }
/// assert_eq!(client.get("b")?, b"value");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncClient {
    client: Client,
}

impl AsyncClient {
    pub(crate) fn new(client: Client) -> Self {
        AsyncClient { client }
    }

    fn run<T: Send + 'static>(&self, call: impl FnOnce(&Client) -> Result<T> + Send + 'static) -> Pending<T> {
        let client = self.client.clone();
        self.client.0.executor.run(move || call(&client))
    }

    /// See [`Client::put`].
    pub fn put(&self, key: Vec<u8>, value: Vec<u8>, config: ReplicateConfig) -> Pending<PutOutcome> {
        self.run(move |client| client.put(&key, &value, &config))
    }

    /// See [`Client::put_from`].
    pub fn put_from(&self, key: Vec<u8>, from: MemoryRange, config: ReplicateConfig) -> Pending<PutOutcome> {
        self.run(move |client| client.put_from(&key, from, &config))
    }

    /// See [`Client::batch_put`].
    pub fn batch_put(
        &self,
        items: Vec<(Vec<u8>, Vec<u8>)>,
        config: ReplicateConfig,
    ) -> Pending<Vec<Result<PutOutcome>>> {
        self.run(move |client| Ok(client.batch_put(&items, &config)))
    }

    /// See [`Client::batch_put_from`].
    pub fn batch_put_from(
        &self,
        items: Vec<(Vec<u8>, MemoryRange)>,
        config: ReplicateConfig,
    ) -> Pending<Vec<Result<PutOutcome>>> {
        self.run(move |client| Ok(client.batch_put_from(&items, &config)))
    }

    /// See [`Client::get`].
    pub fn get(&self, key: Vec<u8>) -> Pending<Vec<u8>> {
        self.run(move |client| client.get(&key))
    }

    /// See [`Client::get_into_range`].
    pub fn get_into_range(&self, key: Vec<u8>, into: MemoryRange) -> Pending<u64> {
        self.run(move |client| client.get_into_range(&key, into))
    }

    /// See [`Client::batch_get`].
    pub fn batch_get(&self, keys: Vec<Vec<u8>>) -> Pending<Vec<Result<Vec<u8>>>> {
        self.run(move |client| Ok(client.batch_get(&keys)))
    }

    /// See [`Client::batch_get_into`].
    pub fn batch_get_into(&self, items: Vec<(Vec<u8>, MemoryRange)>) -> Pending<Vec<Result<u64>>> {
        self.run(move |client| Ok(client.batch_get_into(&items)))
    }

    /// See [`Client::exists`].
    pub fn exists(&self, key: Vec<u8>) -> Pending<bool> {
        self.run(move |client| client.exists(&key))
    }

    /// See [`Client::batch_exists`].
    pub fn batch_exists(&self, keys: Vec<Vec<u8>>) -> Pending<Vec<Result<bool>>> {
        self.run(move |client| Ok(client.batch_exists(&keys)))
    }

    /// See [`Client::query`].
    pub fn query(&self, key: Vec<u8>) -> Pending<Lookup> {
        self.run(move |client| client.query(&key))
    }

    /// See [`Client::remove`].
    pub fn remove(&self, key: Vec<u8>, force: bool) -> Pending<()> {
        self.run(move |client| client.remove(&key, force))
    }

    /// See [`Client::batch_remove`].
    pub fn batch_remove(&self, keys: Vec<Vec<u8>>, force: bool) -> Pending<Vec<Result<()>>> {
        self.run(move |client| Ok(client.batch_remove(&keys, force)))
    }

    /// See [`Client::remove_all`].
    pub fn remove_all(&self, force: bool) -> Pending<u64> {
        self.run(move |client| client.remove_all(force))
    }
}
