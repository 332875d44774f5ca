//! Everything that this service refuses, and the status that says so.

use std::time::Duration;

use proto::{Invalid, PROTOCOL};
use replay::store::HomeError;
use replay::store::directory::DirectoryError;
use replay::{InsertError, LoadError, OptionsError};
use tonic::{Code, Status};

/// Why a caller gets no for an answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Another version of the wire.
    #[error("this shard speaks protocol {PROTOCOL}, the caller {0}: run the same version of quiver on both")]
    Protocol(u32),
    /// A caller from elsewhere.
    #[error(
        "this shard belongs to run {ours:?}, the caller to run {theirs:?}: give it the address of its own shard, or for a \
         new run start a shard with another --data-dir"
    )]
    Run {
        /// The shard's run.
        ours: String,
        /// The caller's.
        theirs: String,
    },
    /// The caller looks for another shard of the run, which has moved.
    #[error("this is shard {ours:?}, the caller means {theirs:?}: ask the learner where that one is now")]
    OtherShard {
        /// This one.
        ours: String,
        /// The one that is looked for.
        theirs: String,
    },
    /// A learner that came back has a larger incarnation than this one.
    #[error("learner incarnation {given} was replaced by {newest}: stop this one")]
    Learner {
        /// Who called.
        given: u32,
        /// The newest known.
        newest: u32,
    },
    /// A shard keeps its sizes and samplers for its life.
    #[error(
        "this shard holds {what} {ours}, not {theirs}: set it back, or give the shard an empty data directory"
    )]
    OtherTable {
        /// The first field that differs.
        what: &'static str,
        /// The shard's.
        ours: String,
        /// The caller's.
        theirs: String,
    },
    /// A writer whose frames are not like the table's.
    #[error("the writer's {what} is {theirs}, the table's {ours}: start it with the run's configuration")]
    Shape {
        /// What differs.
        what: &'static str,
        /// The table's.
        ours: String,
        /// The writer's.
        theirs: String,
    },
    /// A chunk that is not the writer's own.
    #[error(
        "chunk of actor {actor} incarnation {incarnation} on the stream of another: send the hello's own chunks"
    )]
    OtherWriter {
        /// The chunk's actor.
        actor: u32,
        /// And its incarnation.
        incarnation: u64,
    },
    /// Every stream introduces its caller.
    #[error("the first message must be the hello, the others must be chunks")]
    Hello,
    /// Places are few, and not for whoever says nothing.
    #[error("nothing was said for {0:?}: open the stream when there is something to send")]
    Silent(Duration),
    /// Bytes that are no message.
    #[error("not a message of this protocol: run the same version of quiver on both ends")]
    Malformed,
    /// A message that can't be right.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A chunk that does not fit to what is stored.
    #[error(transparent)]
    Insert(#[from] InsertError),
    /// A table that can't be.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A table larger than this process may become.
    #[error(
        "the table may grow to {bytes} bytes, this shard to {limit}: ask for less, or raise its --bytes-limit"
    )]
    TooMuchMemory {
        /// What was asked for.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A reply that the caller would not take.
    #[error("the reply would have more than {most} bytes: ask for fewer items at once")]
    LargeReply {
        /// The bound.
        most: usize,
    },
    /// More streams than there are places.
    #[error("all {most} places for streams like this are taken: use fewer actors or more shards")]
    TooManyStreams {
        /// The bound.
        most: usize,
    },
    /// Nothing was said yet of what it holds.
    #[error("no learner has said yet what this shard holds: start one with its address")]
    Untold,
    /// A table that there is not.
    #[error("this shard has no table {0}: `quiver inspect` lists them")]
    NoSuchTable(String),
    /// An item that there is not, or no longer.
    #[error("no such item: it was evicted, or never was; `quiver inspect --top 10` lists some")]
    NoSuchItem,
    /// One at a time.
    #[error("another snapshot is under way: wait for it")]
    Busy,
    /// A packing that this build does not know.
    #[error(
        "the data directory's frames are packed with {0:?}, which this version does not know: use the version that wrote it"
    )]
    Codec(String),
    /// A snapshot does not go over what is there.
    #[error("the data directory holds the replay of run {run:?} already: give an empty one to restore into")]
    Occupied {
        /// Whose.
        run: String,
    },
    /// The data directory can't be used.
    #[error("{0}")]
    Directory(String),
    /// The disk, or what is on it.
    #[error("cannot {what}: {why}")]
    Storage {
        /// What was tried.
        what: String,
        /// Why not.
        why: String,
    },
    /// Nothing is wrong with the caller.
    #[error("the shard is stopping: come back")]
    Stopping,
}

/// What a refusal is counted as. A closed set, for a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The message can never be right.
    Invalid,
    /// The caller was replaced by a newer one.
    Fenced,
    /// Another run.
    Run,
    /// Another protocol.
    Protocol,
    /// Another table.
    Table,
    /// More than the shard takes.
    Limit,
}

impl Reason {
    /// The label's values, in the order of the variants.
    pub const NAMES: [&str; 6] = ["invalid", "fenced", "run", "protocol", "table", "limit"];

    /// The label's value.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl Refusal {
    /// Something that the disk or the system did not let us do.
    pub fn storage(what: &str) -> impl Fn(std::io::Error) -> Self {
        let what = what.to_owned();
        move |why| Refusal::Storage { what: what.clone(), why: why.to_string() }
    }

    /// A store that can't be opened.
    pub fn home(error: HomeError) -> Self {
        match error {
            HomeError::Options(error) => Refusal::Options(error),
            HomeError::Io { name, bytes, source } => {
                let what = format!("have {bytes} bytes for the replay's {name}");
                Refusal::Storage { what, why: source.to_string() }
            }
        }
    }

    /// The one place where the domain's errors become statuses. A stop is nobody's fault and not counted.
    fn judge(&self) -> (Code, Option<Reason>) {
        let (code, reason) = match self {
            Refusal::Protocol(_) => (Code::FailedPrecondition, Reason::Protocol),
            Refusal::Run { .. } => (Code::FailedPrecondition, Reason::Run),
            // Not a refusal for ever: the caller finds it elsewhere, or here later.
            Refusal::OtherShard { .. } => (Code::NotFound, Reason::Run),
            Refusal::Learner { .. } => (Code::FailedPrecondition, Reason::Fenced),
            Refusal::OtherTable { .. } => (Code::FailedPrecondition, Reason::Table),
            Refusal::Shape { .. }
            | Refusal::OtherWriter { .. }
            | Refusal::Hello
            | Refusal::Silent(_)
            | Refusal::Malformed
            | Refusal::Invalid(_) => (Code::InvalidArgument, Reason::Invalid),
            Refusal::Insert(error) => match error {
                InsertError::Fenced { .. } => (Code::FailedPrecondition, Reason::Fenced),
                InsertError::LanesFull { .. } => (Code::ResourceExhausted, Reason::Limit),
                InsertError::NumberTooLarge(_)
                | InsertError::NotContiguous { .. }
                | InsertError::FrameSize { .. }
                | InsertError::KeyFrame { .. }
                | InsertError::Frames { .. }
                | InsertError::ChunkSize { .. }
                | InsertError::NoSuchTable { .. }
                | InsertError::NotFinite { .. }
                | InsertError::OutOfEpisode { .. }
                | InsertError::ItemOrder { .. }
                | InsertError::ItemRange { .. }
                | InsertError::ItemCrossesEnd { .. } => (Code::InvalidArgument, Reason::Invalid),
            },
            Refusal::Options(error) => match error {
                OptionsError::Memory { .. } => (Code::ResourceExhausted, Reason::Limit),
                OptionsError::Capacity(_)
                | OptionsError::Tables(_)
                | OptionsError::Name(_)
                | OptionsError::Stack(_)
                | OptionsError::FrameBytes(_)
                | OptionsError::BytesMax { .. }
                | OptionsError::Number { .. } => (Code::InvalidArgument, Reason::Invalid),
            },
            Refusal::TooMuchMemory { .. }
            | Refusal::LargeReply { .. }
            | Refusal::TooManyStreams { .. }
            | Refusal::Busy
            | Refusal::Storage { .. } => (Code::ResourceExhausted, Reason::Limit),
            Refusal::Untold | Refusal::Codec(_) | Refusal::Occupied { .. } | Refusal::Directory(_) => {
                (Code::FailedPrecondition, Reason::Table)
            }
            Refusal::NoSuchTable(_) => (Code::InvalidArgument, Reason::Invalid),
            Refusal::NoSuchItem => (Code::NotFound, Reason::Invalid),
            Refusal::Stopping => return (Code::Unavailable, None),
        };
        (code, Some(reason))
    }

    /// What it is counted as.
    pub fn reason(&self) -> Option<Reason> {
        self.judge().1
    }

    /// What the caller is told.
    pub fn status(&self) -> Status {
        Status::new(self.judge().0, self.to_string())
    }
}

impl From<DirectoryError> for Refusal {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Io { what, source } => {
                Refusal::Storage { what: format!("{what} in the data directory"), why: source.to_string() }
            }
            other => Refusal::Directory(other.to_string()),
        }
    }
}

impl From<LoadError> for Refusal {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Io(source) => {
                Refusal::Storage { what: "read the snapshot".into(), why: source.to_string() }
            }
            LoadError::Home(error) => Refusal::home(error),
            other => Refusal::Directory(other.to_string()),
        }
    }
}
