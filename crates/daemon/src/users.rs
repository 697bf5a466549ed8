//! Which users of this host may attach.

use std::str::FromStr;

/// The users that may attach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Users {
    /// The daemon's own, and root.
    #[default]
    Own,
    /// Every user of the host.
    Any,
    /// These by number, the daemon's own, and root.
    These(Vec<u32>),
}

/// The text names no users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of \"own\", \"any\" and a list of user numbers such as 1000,1001")]
pub struct BadUsers(String);

impl Users {
    /// Whether the user `uid` may attach to a daemon of user `own`.
    pub(crate) fn admits(&self, uid: u32, own: u32) -> bool {
        match self {
            Users::Any => true,
            Users::Own => uid == own || uid == 0,
            Users::These(list) => uid == own || uid == 0 || list.contains(&uid),
        }
    }
}

impl FromStr for Users {
    type Err = BadUsers;

    /// `own`, `any`, or numbers with commas between them.
    fn from_str(text: &str) -> Result<Self, BadUsers> {
        match text.trim() {
            "own" | "" => Ok(Users::Own),
            "any" => Ok(Users::Any),
            list => {
                let numbers: Result<Vec<u32>, _> = list.split(',').map(|number| number.trim().parse()).collect();
                numbers.map(Users::These).map_err(|_| BadUsers(text.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_user_and_root_are_let_in_and_others_by_name() {
        assert!(Users::Own.admits(1000, 1000) && Users::Own.admits(0, 1000) && !Users::Own.admits(1001, 1000));
        let listed: Users = "1001, 1002".parse().unwrap();
        assert!(listed.admits(1002, 1000) && listed.admits(1000, 1000) && !listed.admits(1003, 1000));
        assert!("any".parse::<Users>().unwrap().admits(4, 1000));
        assert_eq!("bob".parse::<Users>(), Err(BadUsers("bob".to_owned())));
    }
}
