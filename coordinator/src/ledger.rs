//! Double-entry accounting, pure. Every posting sums to zero, so all books together always do.

use std::fmt;

use island_protocol::{credits::MicroCredits, ids::AccountId};

/// One of the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ledger {
    /// What an account may spend.
    Balance(AccountId),
    /// What an account's open jobs hold.
    Holds(AccountId),
    /// Where credits come from: the only book that may be below zero.
    Issue,
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balance(account) => write!(f, "account:{account}"),
            Self::Holds(account) => write!(f, "holds:{account}"),
            Self::Issue => f.write_str("platform:issue"),
        }
    }
}

/// Why money moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Credits given to an account.
    Grant,
    /// Set aside for a job.
    Hold,
    /// Paid for a job, to the owner of the Island that ran it.
    Settle,
    /// Given back.
    Release,
}

impl Kind {
    /// The name in SQL.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Hold => "hold",
            Self::Settle => "settle",
            Self::Release => "release",
        }
    }
}

/// A movement between two books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posting {
    pub kind: Kind,
    pub from: Ledger,
    pub to: Ledger,
    pub amount: MicroCredits,
}

impl Posting {
    /// Its two entries.
    pub(crate) fn entries(&self) -> [(Ledger, MicroCredits); 2] {
        [(self.from, -self.amount), (self.to, self.amount)]
    }
}

/// Gives credits to an account.
pub(crate) fn grant(account: AccountId, amount: MicroCredits) -> Posting {
    Posting { kind: Kind::Grant, from: Ledger::Issue, to: Ledger::Balance(account), amount }
}

/// Sets a job's price aside.
pub(crate) fn hold(account: AccountId, price: MicroCredits) -> Posting {
    Posting { kind: Kind::Hold, from: Ledger::Balance(account), to: Ledger::Holds(account), amount: price }
}

/// Closes a hold of `held`: `charged` of it goes to `earner`, the rest back. Empty movements are left out.
pub(crate) fn close(
    account: AccountId,
    earner: Option<AccountId>,
    held: MicroCredits,
    charged: MicroCredits,
) -> Vec<Posting> {
    let charged = if earner.is_some() { charged.clamp(MicroCredits::ZERO, held) } else { MicroCredits::ZERO };
    let holds = Ledger::Holds(account);
    let settle = earner.map(|earner| Posting {
        kind: Kind::Settle,
        from: holds,
        to: Ledger::Balance(earner),
        amount: charged,
    });
    let release =
        Posting { kind: Kind::Release, from: holds, to: Ledger::Balance(account), amount: held - charged };
    settle.into_iter().chain([release]).filter(|posting| posting.amount > MicroCredits::ZERO).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    type Books = BTreeMap<Ledger, MicroCredits>;

    fn apply(books: &mut Books, posting: &Posting) {
        for (ledger, amount) in posting.entries() {
            *books.entry(ledger).or_default() += amount;
        }
    }

    fn account(n: u8) -> AccountId {
        AccountId(Uuid::from_u128(u128::from(n)))
    }

    #[derive(Debug, Clone)]
    enum Step {
        Grant(u8, i64),
        Hold(u8, i64),
        Close(usize, u8, i64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_u8..3, 1_i64..10_000_000).prop_map(|(who, amount)| Step::Grant(who, amount)),
            (0_u8..3, 0_i64..5_000_000).prop_map(|(who, amount)| Step::Hold(who, amount)),
            (any::<usize>(), 0_u8..4, -10_i64..8_000_000)
                .prop_map(|(which, earner, charged)| Step::Close(which, earner, charged)),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        #[test]
        fn books_balance_and_stay_above_zero(steps in steps()) {
            let mut books = Books::new();
            let mut open: Vec<(AccountId, MicroCredits)> = Vec::new();
            for step in steps {
                match step {
                    Step::Grant(who, amount) => apply(&mut books, &grant(account(who), MicroCredits(amount))),
                    Step::Hold(who, amount) => {
                        let balance = books.get(&Ledger::Balance(account(who))).copied().unwrap_or_default();
                        if balance >= MicroCredits(amount) {
                            apply(&mut books, &hold(account(who), MicroCredits(amount)));
                            open.push((account(who), MicroCredits(amount)));
                        }
                    }
                    Step::Close(which, earner, charged) if !open.is_empty() => {
                        let (who, held) = open.swap_remove(which % open.len());
                        let earner = (earner < 3).then(|| account(earner));
                        for posting in &close(who, earner, held, MicroCredits(charged)) {
                            apply(&mut books, posting);
                        }
                    }
                    Step::Close(..) => {}
                }
                prop_assert_eq!(books.values().copied().sum::<MicroCredits>(), MicroCredits::ZERO);
                for (ledger, amount) in &books {
                    prop_assert!(*ledger == Ledger::Issue || *amount >= MicroCredits::ZERO, "{} {}", ledger, amount);
                }
            }
            let held: MicroCredits = open.iter().map(|(_, held)| *held).sum();
            let holds: MicroCredits =
                books.iter().filter(|(l, _)| matches!(l, Ledger::Holds(_))).map(|(_, amount)| *amount).sum();
            prop_assert_eq!(held, holds);
        }
    }

    #[test]
    fn without_an_earner_everything_goes_back() {
        let postings = close(account(1), None, MicroCredits(5), MicroCredits(5));
        assert_eq!(postings.len(), 1);
        assert_eq!((postings[0].kind, postings[0].amount), (Kind::Release, MicroCredits(5)));
    }
}
