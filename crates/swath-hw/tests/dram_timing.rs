//! Tests made from the table: for every line of every part, the later command
//! is blocked at clock n - 1 and ready at n, where the line applies, and not blocked elsewhere.

use std::borrow::Cow;

use swath_hw::Cycle;
use swath_hw::dram::TimingState;
use swath_hw::dram::{Command, Constraint, PARTS, Part, Scope};

const RANKS: u32 = 2;
/// When the earlier command is issued.
const START: Cycle = 1000;

/// The bank that takes the earlier command; there is one before and one after
/// it wherever the part has room.
fn first_bank(part: &Part) -> u32 {
    part.banks() / 2
}

/// Whether a line holds back a command to the bank `to` after one to the bank `from`.
fn applies(part: &Part, scope: Scope, from: u32, to: u32) -> bool {
    let same_rank = from / part.banks() == to / part.banks();
    match scope {
        Scope::Bank => from == to,
        Scope::Group => from / part.banks_per_group == to / part.banks_per_group,
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
            for to in 0..state.banks() {
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
                for to in 0..state.banks() {
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
    let slow = Part { refresh_interval_cycles: 100, ..good.clone() };
    assert!(matches!(slow.validate(), Err(PartError::Refresh { interval_cycles: 100, .. })));
}
