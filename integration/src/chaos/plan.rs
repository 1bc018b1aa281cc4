//! What is done to the network, as a pure function of a seed.

use std::{fmt, time::Duration};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

const HOUR_MS: i64 = 3_600_000;

/// How many of each part there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Servers of the fabric, a cluster.
    pub servers: usize,
    /// Coordinators, on one database.
    pub coordinators: usize,
    /// Islands.
    pub islands: usize,
}

/// A part that can be killed and frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A server of the fabric.
    Server(usize),
    /// A coordinator.
    Coordinator(usize),
    /// The agent of an Island.
    Agent(usize),
    /// A worker of an Island, whichever it has.
    Worker(usize),
    /// The server of the coordinators' database. It starts again at once.
    Database,
}

/// A disk that can be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disk {
    /// That of an Island's state.
    Island(usize),
    /// That of the database.
    Database,
}

/// A connection between parts that can be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Consumers to the API.
    Consumers,
    /// An agent to the API.
    AgentApi(usize),
    /// An agent to the fabric.
    AgentFabric(usize),
    /// A coordinator to the fabric.
    CoordinatorFabric(usize),
    /// A coordinator to the database.
    CoordinatorDatabase(usize),
    /// Between two servers of the fabric.
    Route(usize, usize),
}

/// Which bytes a cut holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// All.
    Both,
    /// Those of the side that connected.
    There,
    /// Those of the other side.
    Back,
}

impl Direction {
    /// The same bytes, where the other side connected.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Self::Both => Self::Both,
            Self::There => Self::Back,
            Self::Back => Self::There,
        }
    }
}

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A part gets SIGKILL, and starts again after a time. A worker is started by its agent.
    Kill(Part, Duration),
    /// A part gets SIGSTOP, and continues after a time.
    Freeze(Part, Duration),
    /// A connection holds bytes back for a time, and delivers them then.
    Cut(Link, Direction, Duration),
    /// A server of the fabric is killed and starts again with an empty store.
    EmptyStore(usize, Duration),
    /// A disk is full for a time.
    FillDisk(Disk, Duration),
    /// The wall-clock time that a coordinator or an agent reads jumps by this many milliseconds, and back after a time.
    StepClock(Part, i64, Duration),
}

/// Faults that begin at one time, and the pause before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// Pause after the last strike.
    pub after: Duration,
    /// One or two.
    pub faults: Vec<Fault>,
}

/// The strikes of a seed, without end. Times are shares of a lease, so that most faults are noticed before it expires and some after.
pub fn strikes(seed: u64, size: Size, lease: Duration) -> impl Iterator<Item = Strike> {
    let mut random = StdRng::seed_from_u64(seed);
    std::iter::repeat_with(move || {
        let after = lease.mul_f64(random.random_range(0.03..0.15));
        let count = if random.random_bool(0.25) { 2 } else { 1 };
        let faults = (0..count).map(|_| fault(&mut random, size, lease)).collect();
        Strike { after, faults }
    })
}

fn fault(random: &mut StdRng, size: Size, lease: Duration) -> Fault {
    let part = part(random, size);
    let link = link(random, size);
    let direction = match random.random_range(0..4) {
        0 => Direction::There,
        1 => Direction::Back,
        _ => Direction::Both,
    };
    let down = lease.mul_f64(random.random_range(0.0..0.2));
    // A thirtieth of a lease to four thirds: 1 to 40 s of half a minute.
    let length = lease.mul_f64(1.0 / 30.0 * 40.0_f64.powf(random.random_range(0.0..1.0)));
    match random.random_range(0..100) {
        0..38 => Fault::Kill(part, down),
        38..61 => Fault::Freeze(part, length),
        61..83 => Fault::Cut(link, direction, length),
        83..88 => Fault::EmptyStore(random.random_range(0..size.servers), down),
        88..94 => Fault::FillDisk(disk(random, size), length),
        _ => {
            let error = if random.random_bool(0.5) { HOUR_MS } else { -HOUR_MS };
            let number = random.random_range(0..size.coordinators + size.islands);
            let reader = if number < size.coordinators {
                Part::Coordinator(number)
            } else {
                Part::Agent(number - size.coordinators)
            };
            Fault::StepClock(reader, error, length)
        }
    }
}

fn part(random: &mut StdRng, size: Size) -> Part {
    match random.random_range(0..9) {
        0..2 => Part::Server(random.random_range(0..size.servers)),
        2..4 => Part::Coordinator(random.random_range(0..size.coordinators)),
        4..6 => Part::Agent(random.random_range(0..size.islands)),
        6..8 => Part::Worker(random.random_range(0..size.islands)),
        _ => Part::Database,
    }
}

fn disk(random: &mut StdRng, size: Size) -> Disk {
    if random.random_bool(0.25) { Disk::Database } else { Disk::Island(random.random_range(0..size.islands)) }
}

fn link(random: &mut StdRng, size: Size) -> Link {
    let links = links(size);
    links[random.random_range(0..links.len())]
}

/// All connections of a network.
pub fn links(size: Size) -> Vec<Link> {
    let agents = (0..size.islands).flat_map(|agent| [Link::AgentApi(agent), Link::AgentFabric(agent)]);
    let coordinators = (0..size.coordinators).flat_map(|coordinator| {
        [Link::CoordinatorFabric(coordinator), Link::CoordinatorDatabase(coordinator)]
    });
    let routes =
        (0..size.servers).flat_map(|one| (one + 1..size.servers).map(move |other| Link::Route(one, other)));
    std::iter::once(Link::Consumers).chain(agents).chain(coordinators).chain(routes).collect()
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(number) => write!(f, "nats-{number}"),
            Self::Coordinator(number) => write!(f, "coordinator-{number}"),
            Self::Agent(number) => write!(f, "island-{number}"),
            Self::Worker(number) => write!(f, "a worker of island-{number}"),
            Self::Database => f.write_str("postgres"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = Duration::as_millis;
        match self {
            Self::Kill(part, down) => write!(f, "kill {part}, down for {} ms", ms(down)),
            Self::Freeze(part, length) => write!(f, "freeze {part} for {} ms", ms(length)),
            Self::Cut(link, direction, length) => {
                write!(f, "cut {link:?} ({direction:?}) for {} ms", ms(length))
            }
            Self::EmptyStore(server, down) => {
                write!(f, "kill nats-{server} and empty its store, down for {} ms", ms(down))
            }
            Self::FillDisk(Disk::Island(number), length) => {
                write!(f, "fill the disk of island-{number} for {} ms", ms(length))
            }
            Self::FillDisk(Disk::Database, length) => {
                write!(f, "fill the disk of postgres for {} ms", ms(length))
            }
            Self::StepClock(part, by, length) => {
                write!(f, "step the clock of {part} by {} s for {} ms", by / 1000, ms(length))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { servers: 3, coordinators: 2, islands: 3 };
    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn a_seed_gives_the_same_strikes_again_and_another_seed_others() {
        let of = |seed| strikes(seed, SIZE, LEASE).take(300).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn every_kind_of_fault_is_among_three_hundred_strikes() {
        let strikes: Vec<Strike> = strikes(1, SIZE, LEASE).take(300).collect();
        let faults: Vec<Fault> = strikes.iter().flat_map(|strike| strike.faults.clone()).collect();
        let kinds: [fn(&Fault) -> bool; 14] = [
            |fault| matches!(fault, Fault::Kill(Part::Server(_), _)),
            |fault| matches!(fault, Fault::Kill(Part::Coordinator(_), _)),
            |fault| matches!(fault, Fault::Kill(Part::Agent(_), _)),
            |fault| matches!(fault, Fault::Kill(Part::Worker(_), _)),
            |fault| matches!(fault, Fault::Freeze(..)),
            |fault| matches!(fault, Fault::Cut(_, Direction::Both, _)),
            |fault| matches!(fault, Fault::Cut(_, Direction::There | Direction::Back, _)),
            |fault| matches!(fault, Fault::EmptyStore(..)),
            |fault| matches!(fault, Fault::FillDisk(Disk::Island(_), _)),
            |fault| matches!(fault, Fault::FillDisk(Disk::Database, _)),
            |fault| matches!(fault, Fault::Kill(Part::Database, _)),
            |fault| matches!(fault, Fault::Freeze(Part::Database, _)),
            |fault| matches!(fault, Fault::StepClock(Part::Coordinator(_), ..)),
            |fault| matches!(fault, Fault::StepClock(Part::Agent(_), ..)),
        ];
        for (number, is_kind) in kinds.iter().enumerate() {
            assert!(faults.iter().any(is_kind), "no fault of kind {number}");
        }
        assert!(strikes.iter().any(|strike| strike.faults.len() == 2), "some come in pairs");
        let freezes: Vec<Duration> = faults
            .iter()
            .filter_map(|fault| if let Fault::Freeze(_, length) = fault { Some(*length) } else { None })
            .collect();
        let (least, most) = (Duration::from_millis(990), Duration::from_secs(40));
        assert!(freezes.iter().all(|length| (least..=most).contains(length)), "{freezes:?}");
    }

    #[test]
    fn every_link_is_cut_sooner_or_later() {
        let cut: Vec<Link> = strikes(1, SIZE, LEASE)
            .take(2_000)
            .flat_map(|strike| strike.faults)
            .filter_map(|fault| if let Fault::Cut(link, ..) = fault { Some(link) } else { None })
            .collect();
        for link in links(SIZE) {
            assert!(cut.contains(&link), "{link:?}");
        }
    }
}
