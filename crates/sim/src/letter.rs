//! Mail between the simulated cores, and from the administrator to one.

use std::fmt;
use std::rc::Rc;

use front::testing::Mail;

use crate::host::Core;

/// What an administrator holds until what was asked for is done. The host drops it then.
pub type Receipt = Rc<()>;

/// What an administrator has a core do.
pub struct Order(pub(crate) Box<Act>);

type Act = dyn FnOnce(&mut Core);

impl Order {
    /// The core does this.
    pub(crate) fn new(act: impl FnOnce(&mut Core) + 'static) -> Self {
        Self(Box::new(act))
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Order")
    }
}

/// Mail to a core.
#[derive(Debug)]
pub enum Letter {
    /// Of a core.
    Mail(Mail),
    /// Of the administrator.
    Order(Order),
}
