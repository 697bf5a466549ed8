//! Functions of features that are not built: answered with their own type, so that a client goes on.
//!
//! NVMe-oF mounts get what the peer says in a build without it, their listing is empty, and none has the
//! name that is asked for.

use yb_rpc::{Outcome, Reply};
use yb_types::ErrorCode;
use yb_wire::{Call, Rpc, call};

use crate::metrics::Tally;
use crate::service::Context;

fn refuse<'r, C, T>(context: &mut Context<'_, 'r>, reply: Reply<'_>, code: ErrorCode) -> Outcome
where
    C: Call<Reply<'r> = Result<T, ErrorCode>>,
    Result<T, ErrorCode>: Tally,
{
    context.typed::<C>(reply, |_, _| Err(code))
}

macro_rules! refuse_each {
    ($context:ident, $reply:ident, $code:expr; $($rpc:ident),*) => {
        match $context.rpc {
            $(Rpc::$rpc => return refuse::<call::$rpc, _>($context, $reply, $code),)*
            _ => {}
        }
    };
}

pub(crate) fn dispatch(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    if context.rpc == Rpc::GetAllNofSegments {
        return context.typed::<call::GetAllNofSegments>(reply, |_, _| Ok(Vec::new()));
    }
    refuse_each!(context, reply, ErrorCode::UNAVAILABLE_IN_CURRENT_MODE; MountNofSegment, ReMountNofSegment, UnmountNofSegment);
    refuse_each!(context, reply, ErrorCode::SEGMENT_NOT_FOUND; GetNofSegmentsByName);
    super::weight::dispatch(context, reply)
}
