//! Requests that make the master walk over all objects: it may take long, and one that stands still must not.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use yb_rpc::{ReplyBody, RpcError};
use yb_wire::Call;
use yb_wire::messages::NoArgs;
use yb_wire::{Form, call};

use super::MasterLink;
use crate::deadline::Deadline;

/// An answer is waited for so long before the master is asked whether it is there.
const LOOK: Duration = Duration::from_millis(500);
/// Who says nothing for so long stands still: as for any call without progress.
const SILENCE: Duration = Duration::from_secs(2);

impl MasterLink {
    /// As a call of the pool; ends two and a half seconds after the master ceased to answer anything.
    pub(super) fn call_slowly(&self, function: u32, body: Vec<u8>, deadline: &Deadline) -> Result<ReplyBody, RpcError> {
        let (done, answer) = sync_channel(1);
        self.pool.submit(function, body, deadline.at, move |result| {
            // Nobody waits for it any more when the master was found silent.
            let _ = done.send(result);
        });
        loop {
            match answer.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => return Err(RpcError::ShutDown),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Err(error) = self.look_for_it(deadline) {
                // It may have come in between.
                return answer.try_recv().unwrap_or(Err(error));
            }
        }
    }

    /// Any answer is a sign of life.
    fn look_for_it(&self, deadline: &Deadline) -> Result<(), RpcError> {
        let Ok(signature) = self.table.signature(call::ServiceReady::RPC) else { return Ok(()) };
        let mut body = Vec::new();
        if yb_pack::encode(&NoArgs {}, &signature.args, Form::Bare, &mut body).is_err() {
            return Ok(());
        }
        match self.pool.call(signature.function_id, &body, deadline.at.min(self.now() + SILENCE)) {
            Ok(_) | Err(RpcError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
