//! Warnings of a run, as data: the kinds. The sentence of a warning stands where it is raised: search for its kind.

use serde::{Deserialize, Serialize};

macro_rules! warning_kinds {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// What kind of thing a warning is about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum WarningKind {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl WarningKind {
            /// Every kind.
            pub const ALL: &[WarningKind] = &[$(WarningKind::$variant,)*];

            /// The name in records.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(WarningKind::$variant => $name,)*
                }
            }
        }
    };
}

warning_kinds! {
    /// Memory did not get pages of the size that the policy names, or perhaps did not.
    PlacementShortfall => "placement-shortfall",
    /// Placement could not be measured.
    PlacementUnknown => "placement-unknown",
    /// A governed request went to the kernel because a pool could not serve it.
    FallbackToKernel => "fallback-to-kernel",
    /// The preload library never started in the program.
    GuestNotLoaded => "guest-not-loaded",
    /// The preload library started and took itself out of service.
    GuestDisabled => "guest-disabled",
    /// A child ran without the policy.
    ChildUngoverned => "child-ungoverned",
    /// A killed process may have relied on a heap below 4 GiB.
    HeapMoved => "heap-moved",
    /// The program's own calls took huge tiles apart.
    TileSplit => "tile-split",
    /// A call of the program was refused because its tiles cannot serve it.
    CallRefused => "call-refused",
    /// Readahead could not be set.
    ReadaheadNotControlled => "readahead-not-controlled",
    /// Fault-around could not be set.
    FaultAroundNotControlled => "fault-around-not-controlled",
    /// The page cache could not be flushed.
    CacheNotFlushed => "cache-not-flushed",
    /// Free memory could not be touched before the program started.
    HostNotBacked => "host-not-backed",
    /// Address-space randomisation could not be set.
    AslrNotControlled => "aslr-not-controlled",
    /// A counter could not be opened.
    CounterUnavailable => "counter-unavailable",
    /// A counter read something that cannot be.
    CounterImplausible => "counter-implausible",
    /// A counter ran only part of the time.
    CounterMultiplexed => "counter-multiplexed",
    /// A counter's event is not documented by the vendor.
    CounterExperimental => "counter-experimental",
    /// Not every process of the tree could be told apart.
    ProcessBreakdownPartial => "process-breakdown-partial",
    /// Whether every process of the tree was governed is not known.
    ProcessTreeUnknown => "process-tree-unknown",
    /// A measurement that the program reported could not be read.
    MeasurementUnparsed => "measurement-unparsed",
    /// A part of the program's output did not reach its destination.
    OutputLost => "output-lost",
    /// Windows that the program began or ended are not as they are meant.
    WindowMisused => "window-misused",
    /// A machine setting could not be put back.
    SettingNotRestored => "setting-not-restored",
    /// Fewer CPUs than asked.
    CpuRestricted => "cpu-restricted",
    /// A limit on memory is in force.
    MemoryLimited => "memory-limited",
    /// A limit leaves the program little room for what the policy takes besides.
    RoomScarce => "room-scarce",
    /// The program ran into its timeout.
    TimedOut => "timed-out",
    /// The program failed.
    ProgramFailed => "program-failed",
    /// The machine was not quiet.
    NoisyMachine => "noisy-machine",
    /// A part was left out because it cannot be had here.
    LeftOut => "left-out",
    /// Processes outlived the program and were ended.
    ProcessesLeft => "processes-left",
    /// A study cannot reach its level with the executions it plans.
    LevelNotReachable => "level-not-reachable",
    /// The machine is not the one the study began on.
    MachineChanged => "machine-changed",
    /// A run was under way when the study was interrupted.
    RunInterrupted => "run-interrupted",
    /// A set-up or tear-down command failed.
    StepFailed => "step-failed",
    /// Nobody measured whether frame numbers reach the machine's caches.
    ColoursNotProbed => "colours-not-probed",
    /// The machine's caches do not follow frame numbers.
    ColoursWithoutEffect => "colours-without-effect",
    /// Pages were asked for on a colour or frame and lie on another.
    FramesFallback => "frames-fallback",
    /// Memory that was to be placed cannot be placed.
    FramesOutOfReach => "frames-out-of-reach",
    /// Pages that had been placed were on another frame at exit.
    FramesMoved => "frames-moved",
    /// A process that was to have its frames placed ran without.
    FramesNotPlaced => "frames-not-placed",
    /// The kernel keeps a share of the CPU from a real-time program, or keeps none from it; or the launcher has no higher
    /// priority.
    RealTimeLimited => "real-time-limited",
    /// Analysis: an interval may not have its level.
    IntervalDoubtful => "interval-doubtful",
    /// Analysis: neighbouring measurements, or executions, are correlated.
    MeasurementsDependent => "measurements-dependent",
    /// Analysis: the level changes at one place in all executions (warm-up).
    LevelChangesInside => "level-changes-inside",
    /// Analysis: executions become slower or faster over the schedule.
    TrendOverSchedule => "trend-over-schedule",
    /// Analysis: a statistic does not exist for these data.
    StatisticRefused => "statistic-refused",
}

/// How much a warning matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// The result needs a closer look.
    #[default]
    Warning,
    /// The result does not show what it was made for.
    Serious,
}

/// A warning as it stands in a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunWarning {
    /// What it is about.
    pub kind: WarningKind,
    /// How much it matters.
    #[serde(default)]
    pub severity: Severity,
    /// What happened, in a sentence.
    pub message: String,
    /// Numbers and names behind it.
    #[serde(default)]
    pub data: serde_json::Map<String, serde_json::Value>,
}

impl RunWarning {
    /// A warning without data.
    pub fn new(kind: WarningKind, severity: Severity, message: impl Into<String>) -> RunWarning {
        RunWarning { kind, severity, message: message.into(), data: serde_json::Map::new() }
    }

    /// Adds a datum.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> RunWarning {
        self.data.insert(key.to_owned(), value.into());
        self
    }
}
