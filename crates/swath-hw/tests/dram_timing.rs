//! Tests made from the table: for every line of every part, the later command
//! is blocked at clock n - 1 and ready at n, where the line applies, and not blocked elsewhere.

use std::borrow::Cow;

use swath_hw::Cycle;
use swath_hw::dram::TimingState;
use swath_hw::dram::{Command, Constraint, PARTS, Part, Scope, SetRefresh};
use swath_hw::dram::{DDR5_4800, LPDDR5_6400};

const RANKS: u32 = 2;
/// When the earlier command is issued.
const START: Cycle = 1000;

/// The bank that takes the earlier command; there is one before and one after
/// it wherever the part has room.
fn first_bank(part: &Part) -> u32 {
    part.banks() / 2
}

fn sets(part: &Part) -> u32 {
    part.set_refresh.map_or(1, |refresh| refresh.sets)
}

/// The banks that a command may be told to: of a set, its first.
fn targets(part: &Part, command: Command) -> impl Iterator<Item = u32> {
    let (banks, sets) = (part.banks(), sets(part));
    (0..RANKS * banks).filter(move |bank| command != Command::RefreshSet || bank % banks < sets)
}

/// Whether a line holds back a command to the bank `to` after one to the bank `from`.
fn applies(part: &Part, scope: Scope, from: u32, to: u32) -> bool {
    let same_rank = from / part.banks() == to / part.banks();
    match scope {
        Scope::Bank => from == to,
        Scope::Group => from / part.banks_per_group == to / part.banks_per_group,
        Scope::Set => same_rank && from % sets(part) == to % sets(part),
        Scope::Rank => same_rank,
        Scope::OtherRanks => !same_rank,
    }
}

/// A part whose table is this one alone, with nothing else that blocks.
fn only(part: &Part, constraints: &[Constraint]) -> Part {
    Part {
        constraints: Cow::Owned(constraints.to_vec()),
        bus_cycles: [1; Command::COUNT],
        four_activates_cycles: 0,
        ..part.clone()
    }
}

fn is_ready(state: &TimingState, command: Command, bank: u32, cycle: Cycle) -> bool {
    cycle >= state.earliest(command, bank)
}

#[test]
fn every_line_blocks_until_its_last_cycle_and_no_longer() {
    let mut lines = 0;
    for part in &PARTS {
        for line in part.constraints.iter() {
            let mut state = TimingState::new(&only(part, &[*line]), RANKS).unwrap();
            let from = first_bank(part);
            state.issue(START, line.from, from);
            let n = START + Cycle::from(line.cycles);
            let mut held = 0;
            for to in targets(part, line.to) {
                if applies(part, line.scope, from, to) {
                    assert!(!is_ready(&state, line.to, to, n - 1), "{line:?} of {}", part.name);
                    assert!(is_ready(&state, line.to, to, n), "{line:?} of {}", part.name);
                    held += 1;
                } else {
                    assert!(is_ready(&state, line.to, to, START + 1), "{line:?}, bank {to}");
                }
            }
            assert!(held > 0, "{line:?} of {} applies to nothing", part.name);
            lines += 1;
        }
    }
    assert_eq!(lines, PARTS.iter().map(|part| part.constraints.len()).sum::<usize>());
}

#[test]
fn where_lines_overlap_the_longest_counts() {
    for part in &PARTS {
        for from_command in Command::ALL {
            let mut state = TimingState::new(part, RANKS).unwrap();
            let from = first_bank(part);
            state.issue(START, from_command, from);
            for to_command in Command::ALL {
                for to in targets(part, to_command) {
                    let longest = part
                        .constraints
                        .iter()
                        .filter(|line| line.from == from_command && line.to == to_command)
                        .filter(|line| applies(part, line.scope, from, to))
                        .map(|line| line.cycles)
                        .max();
                    let bus = part.bus_cycles[from_command as usize];
                    let n = START + Cycle::from(longest.unwrap_or(0).max(bus));
                    let what = format!("{} {from_command:?} {to_command:?} {to}", part.name);
                    assert!(!is_ready(&state, to_command, to, n - 1), "{what}");
                    assert!(is_ready(&state, to_command, to, n), "{what}");
                }
            }
        }
    }
}

#[test]
fn the_command_bus_is_held_by_each_command_for_its_time() {
    for part in &PARTS {
        for command in Command::ALL {
            let alone = Part { bus_cycles: part.bus_cycles, ..only(part, &[]) };
            let mut state = TimingState::new(&alone, RANKS).unwrap();
            state.issue(START, command, 0);
            let n = START + Cycle::from(part.bus_cycles[command as usize]);
            for next in Command::ALL {
                for bank in 0..state.banks() {
                    assert!(!is_ready(&state, next, bank, n - 1));
                    assert!(is_ready(&state, next, bank, n));
                }
            }
        }
    }
}

#[test]
fn the_fifth_activate_waits_for_the_first_to_leave_the_window() {
    for part in &PARTS {
        let window = Cycle::from(part.four_activates_cycles);
        let alone = Part { four_activates_cycles: part.four_activates_cycles, ..only(part, &[]) };
        let mut state = TimingState::new(&alone, RANKS).unwrap();
        // Not evenly spread, so that each of the four must be remembered by itself.
        let starts = [0, 2, 5, 9].map(|after| START + after);
        for (bank, start) in (0..).zip(starts) {
            assert!(is_ready(&state, Command::Activate, bank, start), "the first four are free");
            state.issue(start, Command::Activate, bank);
        }
        for (nth, start) in starts.iter().enumerate() {
            let n = start + window;
            assert!(!is_ready(&state, Command::Activate, 0, n - 1), "{} {nth}", part.name);
            assert!(is_ready(&state, Command::Activate, 0, n), "{} {nth}", part.name);
            // Another rank has a window of its own, and only activates are counted.
            assert!(is_ready(&state, Command::Activate, part.banks(), n - 1));
            assert!(is_ready(&state, Command::Read, 0, n - 1));
            state.issue(n, Command::Activate, 0);
        }
    }
}

#[test]
fn every_part_is_one_that_can_be() {
    for part in &PARTS {
        part.validate().unwrap();
        assert_eq!(part.burst_bytes(), 64, "{}", part.name);
    }
    assert_eq!(PARTS[0].rank_bytes(), 1 << 30);
    assert_eq!((DDR5_4800.burst_cycles(), DDR5_4800.rank_bytes()), (8, 8 << 30));
    assert_eq!((LPDDR5_6400.burst_cycles(), LPDDR5_6400.rank_bytes()), (2, 4 << 30));
}

/// A bank, a command, and the clock at which it is ready after the earlier one.
type After = (Command, u32, Cycle);

/// Issues a command at [`START`] and tests that each of the others is blocked at clock n - 1 and
/// ready at n.
fn ready_after(part: &Part, (command, bank): (Command, u32), expected: &[After]) {
    let mut state = TimingState::new(part, RANKS).unwrap();
    state.issue(START, command, bank);
    for &(next, at, n) in expected {
        let what = format!("{}: {command:?} {bank}, {next:?} {at}, {n}", part.name);
        assert!(!is_ready(&state, next, at, START + n - 1), "{what}");
        assert!(is_ready(&state, next, at, START + n), "{what}");
    }
}

/// By hand, in nanoseconds at 2,400 MHz where the standard has nanoseconds. Banks 0 to 3 are the
/// first group, 4 to 7 the second; activates, reads and writes end a cycle after they begin.
#[test]
fn ddr5_waits_as_long_as_its_sheet_says() {
    use Command::{Activate, Precharge, PrechargeAll, Read, Refresh, RefreshSet, Write};
    let part = &DDR5_4800;
    // 32 ns and 48 ns (tRAS, tRC of 77 + 39), and a precharge of one cycle after the second.
    let others = [(Activate, 1, 12), (Activate, 4, 8), (RefreshSet, 1, 12 + 1)];
    let own = [(Read, 0, 39), (Precharge, 0, 77 + 1), (Activate, 0, 77 + 39)];
    ready_after(part, (Activate, 0), &[others, own].concat());
    ready_after(
        part,
        (Read, 0),
        &[(Read, 1, 12), (Read, 4, 8), (Write, 4, 14), (Precharge, 0, 19)],
    );
    // 10 ns in the group where no write is a read-modify-write; 30 ns to the precharge.
    let writes = [(Write, 1, 24), (Write, 4, 8), (Read, 1, 70), (Read, 4, 52)];
    ready_after(part, (Write, 0), &[&writes[..], &[(Precharge, 0, 38 + 8 + 72 + 1)]].concat());
    ready_after(
        part,
        (Precharge, 0),
        &[(Activate, 0, 39 - 1), (RefreshSet, 0, 39), (Precharge, 9, 2)],
    );
    ready_after(part, (Precharge, 5), &[(RefreshSet, 1, 39), (RefreshSet, 0, 1), (Activate, 1, 1)]);
    ready_after(part, (PrechargeAll, 0), &[(RefreshSet, 3, 39), (Activate, 7, 39 - 1)]);
    // 130 ns for bank 1 of each group, 30 ns for the others, none for what is open there.
    for group in 0..8 {
        let of_set = [(Activate, 4 * group + 1, 312 - 1), (Activate, 4 * group + 2, 72 - 1)];
        ready_after(part, (RefreshSet, 1), &of_set);
        ready_after(part, (RefreshSet, 1), &[(Read, 4 * group, 1), (Precharge, 4 * group, 1)]);
    }
    ready_after(part, (RefreshSet, 1), &[(RefreshSet, 2, 312), (Refresh, 0, 312)]);
    // The other rank takes part in nothing but the command bus.
    ready_after(part, (RefreshSet, 1), &[(Activate, 33, 1), (RefreshSet, 33, 1)]);
    ready_after(part, (Refresh, 0), &[(Activate, 9, 708 - 1), (RefreshSet, 2, 708)]);
}

/// By hand, in cycles of 1.25 ns. Bank 0 and bank 8 are a pair.
#[test]
fn lpddr5_waits_as_long_as_its_sheet_says() {
    use Command::{Activate, Precharge, PrechargeAll, Read, Refresh, RefreshSet, Write};
    let part = &LPDDR5_6400;
    let others = [(Activate, 1, 4), (Activate, 4, 4), (RefreshSet, 0, 4)];
    let own = [(Read, 0, 15), (Precharge, 0, 34), (Activate, 0, 49)];
    ready_after(part, (Activate, 0), &[others, own].concat());
    ready_after(part, (Read, 0), &[(Read, 1, 4), (Read, 4, 2), (Write, 1, 14), (Write, 4, 12)]);
    ready_after(part, (Read, 0), &[(Precharge, 0, 6), (PrechargeAll, 0, 6)]);
    ready_after(part, (Write, 0), &[(Write, 1, 4), (Write, 4, 2), (Read, 1, 23), (Read, 4, 16)]);
    ready_after(part, (Write, 0), &[(Precharge, 0, 40)]);
    ready_after(part, (Precharge, 8), &[(Activate, 8, 15), (RefreshSet, 0, 15), (Precharge, 0, 2)]);
    ready_after(part, (PrechargeAll, 0), &[(Activate, 3, 17), (RefreshSet, 3, 17)]);
    // 140 ns for the pair, 7.5 ns for an activate elsewhere, 90 ns for the next pair.
    let pair = [(Activate, 3, 112), (Activate, 11, 112), (Activate, 7, 6), (Read, 7, 1)];
    ready_after(part, (RefreshSet, 3), &pair);
    ready_after(part, (RefreshSet, 3), &[(RefreshSet, 4, 72), (Refresh, 0, 112)]);
    ready_after(part, (Refresh, 0), &[(Activate, 5, 224), (RefreshSet, 5, 224)]);
}

#[test]
fn parts_that_cannot_be_are_refused() {
    use swath_hw::PartError;
    let good = &PARTS[0];
    let size = |part: Part| match part.validate() {
        Err(PartError::Size { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(size(Part { groups: 3, ..good.clone() }), "groups");
    assert_eq!(size(Part { banks_per_group: 0, ..good.clone() }), "banks_per_group");
    assert_eq!(size(Part { bus_bytes: 0, ..good.clone() }), "bus_bytes");
    assert_eq!(size(Part { burst_transfers: 1, ..good.clone() }), "burst_transfers");
    assert_eq!(size(Part { row_bits: 40, ..good.clone() }), "row_bits");
    assert_eq!(size(Part { column_bits: 2, ..good.clone() }), "column_bits");
    assert_eq!(size(Part { clock_period_ps: 0, ..good.clone() }), "clock_period_ps");
    assert_eq!(size(Part { read_latency_cycles: 0, ..good.clone() }), "read_latency_cycles");
    assert_eq!(size(Part { bus_cycles: [0; Command::COUNT], ..good.clone() }), "bus_cycles");
    assert_eq!(
        size(Part { four_activates_cycles: u32::MAX, ..good.clone() }),
        "four_activates_cycles"
    );
    assert_eq!(size(Part { groups: 16, banks_per_group: 8, ..good.clone() }), "banks");
    for ranks in [0, 3, 32, u32::MAX] {
        let error = TimingState::new(good, ranks).err();
        assert_eq!(error, Some(PartError::Size { field: "ranks", value: ranks }));
    }
    let line = Constraint {
        name: "too long",
        from: Command::Read,
        to: Command::Read,
        scope: Scope::Bank,
        cycles: u32::MAX,
    };
    assert_eq!(size(only(good, &[line])), "too long");
    assert_eq!(size(only(good, &vec![line; 2000])), "constraints");
    let narrow = Constraint { from: Command::Refresh, cycles: 1, ..line };
    assert_eq!(only(good, &[narrow]).validate(), Err(PartError::Scope { constraint: narrow }));
    assert_eq!(size(Part { transfers_per_cycle: 3, ..good.clone() }), "transfers_per_cycle");
    assert_eq!(size(Part { transfers_per_cycle: 16, ..good.clone() }), "transfers_per_cycle");
    for sets in [0, 3, 8] {
        let set_refresh = Some(SetRefresh { sets, interval_cycles: 1000 });
        assert_eq!(size(Part { set_refresh, ..good.clone() }), "set_refresh.sets");
    }
    for (from, scope) in [
        (Command::RefreshSet, Scope::Bank),
        (Command::RefreshSet, Scope::Group),
        (Command::Refresh, Scope::Set),
        (Command::Read, Scope::Set),
    ] {
        let narrow = Constraint { from, scope, cycles: 1, ..line };
        let part = only(&DDR5_4800, &[narrow]);
        assert_eq!(part.validate(), Err(PartError::Scope { constraint: narrow }));
    }
    let lines = DDR5_4800.constraints.iter().find(|line| line.name == "tRFCsb").copied().unwrap();
    let set_refresh = None;
    let without = Part { set_refresh, ..only(&DDR5_4800, &[lines]) };
    assert_eq!(without.validate(), Err(PartError::Scope { constraint: lines }));
    let set_refresh = Some(SetRefresh { sets: 4, interval_cycles: 900 });
    let slow = Part { set_refresh, ..DDR5_4800 };
    assert!(matches!(slow.validate(), Err(PartError::Refresh { interval_cycles: 900, .. })));
    let slow = Part { refresh_interval_cycles: 100, ..good.clone() };
    assert!(matches!(slow.validate(), Err(PartError::Refresh { interval_cycles: 100, .. })));
}
