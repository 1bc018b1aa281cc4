//! Double-entry accounting, pure. Every posting sums to zero, and therefore so does the whole ledger.

use std::{collections::BTreeMap, fmt};

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, HostId},
};

/// A book of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Book {
    /// Credits that an account may spend.
    Balance(AccountId),
    /// Credits held for an account's open jobs.
    Holds(AccountId),
    /// Source of all credits: the only book that may be negative.
    Issue,
    /// Earnings that were exported and not yet confirmed as paid.
    Payouts,
}

impl Book {
    /// The account whose balance has this name.
    pub fn account_of_balance(name: &str) -> Option<AccountId> {
        name.strip_prefix("account:")?.parse().ok()
    }
}

impl fmt::Display for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balance(account) => write!(f, "account:{account}"),
            Self::Holds(account) => write!(f, "holds:{account}"),
            Self::Issue => f.write_str("platform:issue"),
            Self::Payouts => f.write_str("platform:payouts"),
        }
    }
}

/// Kind of movement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Credits given to an account.
    Grant,
    /// Credits that an account has paid for.
    Purchase,
    /// Credits taken from an account by an operator.
    Deduct,
    /// What an ended job was charged, returned by an operator.
    Refund,
    /// Set aside for a job.
    Hold,
    /// Paid for a job, to the owner of the Island that ran it.
    Settle,
    /// Returned to the consumer.
    Release,
    /// Earnings that leave their account, and the network once they are paid.
    Payout,
    /// Earnings that were not paid, returned to their account.
    PayoutReturn,
}

impl Kind {
    /// The name in SQL.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A movement between two books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posting {
    pub kind: Kind,
    pub from: Book,
    pub to: Book,
    pub amount: MicroCredits,
    /// Number of the earner, from 0. A job has one posting of each kind and part.
    pub part: u16,
    /// The Island that is paid.
    pub host: Option<HostId>,
}

/// An Island that earns a share of a job's price, for its owner's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Earner {
    pub host: HostId,
    pub account: AccountId,
    pub share: MicroCredits,
}

impl Posting {
    /// The two entries of the posting.
    pub fn entries(&self) -> [(Book, MicroCredits); 2] {
        [(self.from, -self.amount), (self.to, self.amount)]
    }

    /// Whether the receiving balance is increased later, by `count` of the storage: an account may earn from
    /// many jobs at once, whose ends would wait for each other at its balance.
    pub fn is_deferred(&self) -> bool {
        self.kind == Kind::Settle
    }

    /// The balance of the account that spends: its granted credits go first. A hold spends nothing yet.
    pub fn spender(&self) -> Option<Book> {
        match (self.kind, self.from) {
            (Kind::Settle, Book::Holds(account)) => Some(Book::Balance(account)),
            (Kind::Deduct, from) => Some(from),
            _ => None,
        }
    }

    /// Whether its credits come from nowhere but an operator's decision, and so are never paid out.
    pub fn is_granted(&self) -> bool {
        matches!(self.kind, Kind::Grant | Kind::Refund)
    }

    fn new(kind: Kind, from: Book, to: Book, amount: MicroCredits) -> Self {
        Self { kind, from, to, amount, part: 0, host: None }
    }

    /// Grants credits to an account.
    pub fn grant(account: AccountId, amount: MicroCredits) -> Self {
        Self::new(Kind::Grant, Book::Issue, Book::Balance(account), amount)
    }

    /// Gives an account credits that it has paid for. Only these become payable to the owners who earn them.
    pub fn purchase(account: AccountId, amount: MicroCredits) -> Self {
        Self::new(Kind::Purchase, Book::Issue, Book::Balance(account), amount)
    }

    /// Takes credits from an account.
    pub fn deduct(account: AccountId, amount: MicroCredits) -> Self {
        Self::new(Kind::Deduct, Book::Balance(account), Book::Issue, amount)
    }

    /// Returns what a job was charged. The owners who have earned it keep it.
    pub fn refund(account: AccountId, amount: MicroCredits) -> Self {
        Self::new(Kind::Refund, Book::Issue, Book::Balance(account), amount)
    }

    /// Holds a job's price.
    pub fn hold(account: AccountId, price: MicroCredits) -> Self {
        Self::new(Kind::Hold, Book::Balance(account), Book::Holds(account), price)
    }

    /// Takes earnings out of an account for a payout.
    pub fn payout(account: AccountId, amount: MicroCredits) -> Self {
        Self::new(Kind::Payout, Book::Balance(account), Book::Payouts, amount)
    }

    /// Returns earnings of a payout that was cancelled.
    pub fn payout_return(account: AccountId, amount: MicroCredits) -> Self {
        Self::new(Kind::PayoutReturn, Book::Payouts, Book::Balance(account), amount)
    }

    /// Removes the credits of a payout that was paid.
    pub fn paid(amount: MicroCredits) -> Self {
        Self::new(Kind::Payout, Book::Payouts, Book::Issue, amount)
    }

    /// Closes a hold of `held`: each earner gets its amount, as far as the hold suffices, and the account the rest, with the shares of its
    /// own Islands. Postings of zero are left out.
    pub fn close_hold(account: AccountId, earners: &[Earner], held: MicroCredits) -> Vec<Self> {
        let holds = Book::Holds(account);
        let mut by_island: BTreeMap<(AccountId, HostId), MicroCredits> = BTreeMap::new();
        for earner in earners.iter().filter(|earner| earner.account != account) {
            *by_island.entry((earner.account, earner.host)).or_default() += earner.share;
        }
        let mut left = held;
        let mut postings = Vec::with_capacity(by_island.len() + 1);
        for (part, ((earner, host), amount)) in (0..).zip(by_island) {
            let amount = amount.clamp(MicroCredits::ZERO, left);
            left = left - amount;
            let posting = Self::new(Kind::Settle, holds, Book::Balance(earner), amount);
            postings.push(Self { part, host: Some(host), ..posting });
        }
        postings.push(Self::new(Kind::Release, holds, Book::Balance(account), left));
        postings.retain(|posting| posting.amount > MicroCredits::ZERO);
        postings
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    type Balances = BTreeMap<Book, MicroCredits>;

    fn apply(books: &mut Balances, posting: &Posting) {
        for (book, amount) in posting.entries() {
            *books.entry(book).or_default() += amount;
        }
    }

    fn account(n: u8) -> AccountId {
        AccountId(Uuid::from_u128(u128::from(n)))
    }

    #[derive(Debug, Clone)]
    enum Step {
        Grant(u8, i64),
        Deduct(u8, i64),
        Hold(u8, i64),
        Close(usize, Vec<(u8, u8, i64)>),
        Export(u8, i64),
        /// Confirms or returns one of the exported amounts.
        Finish(usize, bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_u8..3, 1_i64..10_000_000).prop_map(|(who, amount)| Step::Grant(who, amount)),
            (0_u8..3, 1_i64..5_000_000).prop_map(|(who, amount)| Step::Deduct(who, amount)),
            (0_u8..3, 0_i64..5_000_000).prop_map(|(who, amount)| Step::Hold(who, amount)),
            (any::<usize>(), prop::collection::vec((0_u8..3, 0_u8..3, -10_i64..8_000_000), 0..4))
                .prop_map(|(which, earners)| Step::Close(which, earners)),
            (0_u8..3, 1_i64..5_000_000).prop_map(|(who, amount)| Step::Export(who, amount)),
            (any::<usize>(), any::<bool>()).prop_map(|(which, is_paid)| Step::Finish(which, is_paid)),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        #[test]
        fn books_balance_and_stay_above_zero(steps in steps()) {
            let mut books = Balances::new();
            let mut open: Vec<(AccountId, MicroCredits)> = Vec::new();
            let mut exported: Vec<(AccountId, MicroCredits)> = Vec::new();
            for step in steps {
                match step {
                    Step::Grant(who, amount) => apply(&mut books, &Posting::grant(account(who), MicroCredits(amount))),
                    Step::Deduct(who, amount) => {
                        let balance = books.get(&Book::Balance(account(who))).copied().unwrap_or_default();
                        if balance >= MicroCredits(amount) {
                            apply(&mut books, &Posting::deduct(account(who), MicroCredits(amount)));
                        }
                    }
                    Step::Hold(who, amount) => {
                        let balance = books.get(&Book::Balance(account(who))).copied().unwrap_or_default();
                        if balance >= MicroCredits(amount) {
                            apply(&mut books, &Posting::hold(account(who), MicroCredits(amount)));
                            open.push((account(who), MicroCredits(amount)));
                        }
                    }
                    Step::Close(which, earners) if !open.is_empty() => {
                        let (who, held) = open.swap_remove(which % open.len());
                        let earners: Vec<_> = earners
                            .into_iter()
                            .map(|(who, island, share)| Earner {
                                host: HostId(Uuid::from_u128(u128::from(island))),
                                account: account(who),
                                share: MicroCredits(share),
                            })
                            .collect();
                        let postings = Posting::close_hold(who, &earners, held);
                        let keys: BTreeSet<_> =
                            postings.iter().map(|posting| (posting.kind, posting.from, posting.part)).collect();
                        prop_assert_eq!(keys.len(), postings.len(), "a posting that would count as written");
                        for posting in &postings {
                            apply(&mut books, posting);
                        }
                    }
                    Step::Export(who, amount) => {
                        let (who, amount) = (account(who), MicroCredits(amount));
                        if books.get(&Book::Balance(who)).copied().unwrap_or_default() >= amount {
                            apply(&mut books, &Posting::payout(who, amount));
                            exported.push((who, amount));
                        }
                    }
                    Step::Finish(which, is_paid) if !exported.is_empty() => {
                        let (who, amount) = exported.swap_remove(which % exported.len());
                        apply(&mut books, &if is_paid { Posting::paid(amount) } else { Posting::payout_return(who, amount) });
                    }
                    Step::Close(..) | Step::Finish(..) => {}
                }
                prop_assert_eq!(books.values().copied().sum::<MicroCredits>(), MicroCredits::ZERO);
                for (book, amount) in &books {
                    prop_assert!(*book == Book::Issue || *amount >= MicroCredits::ZERO, "{} {}", book, amount);
                }
            }
            let held: MicroCredits = open.iter().map(|(_, held)| *held).sum();
            let holds: MicroCredits =
                books.iter().filter(|(book, _)| matches!(book, Book::Holds(_))).map(|(_, amount)| *amount).sum();
            prop_assert_eq!(held, holds);
        }
    }

    #[test]
    fn a_job_on_an_own_island_earns_nothing() {
        let share = |island, who| Earner {
            host: HostId(Uuid::from_u128(island)),
            account: account(who),
            share: MicroCredits(2),
        };
        let postings = Posting::close_hold(account(1), &[share(7, 1), share(8, 2)], MicroCredits(5));
        let made: Vec<_> =
            postings.iter().map(|posting| (posting.kind, posting.to, posting.amount.0)).collect();
        let (mine, theirs) = (Book::Balance(account(1)), Book::Balance(account(2)));
        assert_eq!(made, [(Kind::Settle, theirs, 2), (Kind::Release, mine, 3)]);
    }

    #[test]
    fn without_an_earner_the_whole_hold_is_released() {
        let postings = Posting::close_hold(account(1), &[], MicroCredits(5));
        assert_eq!(postings.len(), 1);
        assert_eq!((postings[0].kind, postings[0].amount), (Kind::Release, MicroCredits(5)));
    }
}
