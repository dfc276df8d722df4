//! Measuring this machine's memory, small enough for every test run.
#![cfg(target_os = "linux")]

use std::process::Command;

use swath_lab::host::memory::{MemoryError, MemoryKind, MemoryPlan, measure};

const PROGRAM: &str = env!("CARGO_BIN_EXE_swath");

/// The command that does a job of the study on superpages.
fn child(program: &str, job: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["child", "superpages", job]);
    command
}

fn plan() -> MemoryPlan {
    MemoryPlan {
        table_bytes: 8 << 20,
        updates: 1 << 18,
        seed: 5,
        release_bytes: vec![2 << 20, 16 << 20],
        repeats: 2,
    }
}

#[test]
fn every_kind_has_numbers_or_a_reason() {
    let real = measure(&|job| Ok(child(PROGRAM, job)), &plan()).unwrap();
    assert!(!real.host.kernel_release.is_empty() && real.host.memory_bytes > 0);
    let kinds: Vec<_> = real.kinds.iter().map(|result| result.kind).collect();
    assert_eq!(kinds, MemoryKind::ALL);
    for result in &real.kinds {
        let measured = match &result.outcome {
            Ok(measured) => measured,
            Err(reason) => {
                assert!(result.kind != MemoryKind::Base && !reason.is_empty(), "{reason}");
                eprintln!("{}: not available: {reason}", result.kind.name());
                continue;
            }
        };
        assert_eq!(measured.gups.values.len(), 2);
        assert!(measured.gups.values.iter().all(|&gups| gups > 0.0));
        let huge = measured.huge_bytes.values.iter();
        match result.kind {
            MemoryKind::Base => assert!(huge.copied().all(|bytes| bytes == 0.0)),
            MemoryKind::Transparent => assert!(huge.copied().all(|bytes| bytes > 0.0)),
            MemoryKind::HugeTlb => assert!(huge.copied().all(|bytes| bytes == f64::from(8 << 20))),
        }
        let lengths: Vec<_> = measured.releases.iter().map(|release| release.len_bytes).collect();
        assert_eq!(lengths, plan().release_bytes);
        for release in &measured.releases {
            assert_eq!(release.release_ns.values.len(), 2);
            assert!(release.touch_ns.values.iter().all(|&ns| ns > 0.0));
            assert!(release.release_ns.values.iter().all(|&ns| ns > 0.0));
        }
    }
    // What a study writes is what another reads.
    let text = serde_json::to_string(&real).unwrap();
    assert_eq!(serde_json::from_str::<swath_lab::host::memory::RealMemory>(&text).unwrap(), real);
}

#[test]
fn what_cannot_be_measured_is_said() {
    let run = |program: &str, plan: &MemoryPlan| measure(&|job| Ok(child(program, job)), plan);
    let error = run("/no/such/program", &plan()).unwrap_err();
    assert!(matches!(error, MemoryError::Child { .. }), "{error:?}");
    let error = run("true", &plan()).unwrap_err();
    assert!(matches!(error, MemoryError::Child { .. }), "{error:?}");
    let failed = run("false", &plan()).unwrap();
    assert!(failed.kinds.iter().all(|result| result.outcome.is_err()));
    let huge = MemoryPlan { table_bytes: 1 << 60, ..plan() };
    assert!(matches!(run(PROGRAM, &huge), Err(MemoryError::TooLarge { .. })));
    let none = MemoryPlan { repeats: 0, ..plan() };
    assert!(matches!(run(PROGRAM, &none), Err(MemoryError::Plan { .. })));
}
