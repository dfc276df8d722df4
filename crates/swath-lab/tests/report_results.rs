//! Results as data: JSON there and back, judgements that follow from figures,
//! and invariants that are refused by name.

use crate::judged::judged;
use proptest::prelude::*;
use swath_lab::study::results::{
    Claim, ClaimFault, Figure, FigureKind, HostResult, MAGNITUDE_MAX, PaperFigure, Point,
    PointFault, ResultError, Series, Spread, Statement, StudyResult, Tolerance, Unit, Verdict,
    check_pair,
};

fn sample() -> StudyResult {
    StudyResult {
        study: "pbs-tlb".to_owned(),
        title: "TLB hit rates".to_owned(),
        paper: "Author 2023".to_owned(),
        reference: "A. Author, A Title, 2023".to_owned(),
        seed: u64::MAX,
        quick: true,
        n: 5,
        plan: serde_json::json!({"sweep": [1, 2, 4], "machine": {"frames": 1024}}),
        finding: "Longer blocks hit more.".to_owned(),
        film: None,
        figures: vec![
            Figure::new("Fig. 11", "Hit rate", FigureKind::LinesLog2, "block (pages)", "rate")
                .with_y_range(0.0, 1.0)
                .with_caption("As in the paper."),
            Figure::new("Fig. 10", "By workload", FigureKind::Bars, "workload", "rate"),
        ],
        series: vec![
            Series::new(
                "Fig. 11",
                "free_block_frames",
                "hit_rate",
                "PBS",
                [(1.0, 0.41), (2.0, 0.1 + 0.2)],
            ),
            Series::new(
                "Fig. 10",
                "workload",
                "hit_rate",
                "PBS",
                [("display", 0.98), ("sensor", 0.99)],
            ),
        ],
        fitted: vec!["columns of 128 bytes".to_owned(), "blocks of 16 × 16 pixels".to_owned()],
        claims: vec![
            judged(
                Statement::about("Section V-B, 2", "up to 22% better", 0.22, 0.05)
                    .unit(Unit::Share)
                    .cause("shorter runs"),
                &[0.19],
            ),
            judged(Statement::between("Fig. 11", "a range", (0.2, 0.6), 0.0), &[0.25, 0.5]),
            judged(Statement::exactly("Fig. 6", "3 nodes", 3.0), &[3.0]),
        ],
        notes: vec!["A note.".to_owned()],
    }
}

#[test]
fn results_come_back_from_json_bit_for_bit() {
    let result = sample();
    let text = serde_json::to_string_pretty(&result).unwrap();
    let back: StudyResult = serde_json::from_str(&text).unwrap();
    assert_eq!(back, result);
    assert_eq!(serde_json::to_string_pretty(&back).unwrap(), text);
    result.check().unwrap();
}

#[test]
fn json_has_the_documented_form() {
    let json = serde_json::to_value(sample()).unwrap();
    assert_eq!(json["study"], "pbs-tlb");
    assert_eq!(json["series"][0]["points"], serde_json::json!([[1.0, 0.41], [2.0, 0.1 + 0.2]]));
    assert_eq!(json["series"][1]["points"][0], serde_json::json!(["display", 0.98]));
    assert_eq!(
        json["claims"][0],
        serde_json::json!({
            "where": "Section V-B, 2", "says": "up to 22% better", "paper": 0.22, "measured": 0.19,
            "n": 1, "interval": [0.19, 0.19], "unit": "share", "tolerance": {"relative": 0.05},
            "verdict": "differs", "cause": "shorter runs", "source": "subject = Section V-B, 2: up to 22% better; value",
        })
    );
    assert_eq!(json["claims"][1]["paper"], serde_json::json!([0.2, 0.6]));
    assert_eq!(json["claims"][1]["n"], 2);
    assert_eq!(json["claims"][1]["verdict"], "undecided");
    assert_eq!(json["claims"][2]["tolerance"], "exactly");
    assert_eq!(json["figures"][0]["kind"], "lines-log2");
}

/// Replaces a value deep in the sample's JSON and gives the reader's error.
fn refusal(change: impl Fn(&mut serde_json::Value)) -> String {
    let mut json = serde_json::to_value(sample()).unwrap();
    change(&mut json);
    serde_json::from_value::<StudyResult>(json).unwrap_err().to_string()
}

#[test]
fn files_that_say_more_or_something_else_are_refused() {
    let text = refusal(|json| json["sead"] = 1.into());
    assert!(text.contains("sead"), "{text}");
    let text = refusal(|json| json["figures"][0]["colour"] = "red".into());
    assert!(text.contains("colour"), "{text}");
    let text = refusal(|json| json["series"][0]["note"] = "".into());
    assert!(text.contains("note"), "{text}");
    let text = refusal(|json| json["claims"][0]["why"] = "".into());
    assert!(text.contains("why"), "{text}");
    let text = refusal(|json| json["claims"][0]["tolerance"] = "roughly".into());
    assert!(text.contains("roughly"), "{text}");
    refusal(|json| json["series"][0]["points"][0] = serde_json::json!([1, null]));
    refusal(|json| json["series"][0]["points"][0] = serde_json::json!([1, 2, 3]));
}

#[test]
fn a_verdict_that_does_not_follow_is_refused() {
    let text = refusal(|json| json["claims"][0]["verdict"] = "holds".into());
    assert!(text.contains("Section V-B, 2") && text.contains("stored as Holds"), "{text}");
    let text = refusal(|json| json["claims"][2]["interval"] = serde_json::json!([4, 4]));
    assert!(text.contains("Fig. 6") && text.contains("Differs follows"), "{text}");
}

#[test]
fn verdicts_follow_from_the_figures() {
    let holds = |statement, value| {
        let verdict = judged(statement, &[value]).verdict();
        assert!(matches!(verdict, Verdict::Holds | Verdict::Differs));
        verdict == Verdict::Holds
    };
    assert!(holds(Statement::at_least("", "", 2.0, 0.0), 2.0));
    assert!(!holds(Statement::at_least("", "", 2.0, 0.0), 1.875));
    assert!(holds(Statement::at_least("", "", 2.0, 0.125), 1.875));
    assert!(holds(Statement::at_least("", "", 2.0, 0.0), 100.0));
    assert!(holds(Statement::at_most("", "", 2.0, 0.0), 2.0));
    assert!(!holds(Statement::at_most("", "", 2.0, 0.0), 2.125));
    assert!(holds(Statement::at_most("", "", 2.0, 0.125), 2.125));
    assert!(holds(Statement::about("", "", -8.0, 0.125), -9.0));
    assert!(!holds(Statement::about("", "", -8.0, 0.125), -9.5));
    assert!(holds(Statement::within("", "", 0.5, 0.25), 0.25));
    assert!(!holds(Statement::within("", "", 0.5, 0.25), 0.125));
    assert!(holds(Statement::exactly("", "", 3.0), 3.0));
    assert!(!holds(Statement::exactly("", "", 3.0), 3.0 + 1e-12));
    assert!(holds(Statement::between("", "", (1.0, 2.0), 0.0), 1.0));
    assert!(holds(Statement::between("", "", (1.0, 2.0), 0.5), 2.5));
    assert!(!holds(Statement::between("", "", (1.0, 2.0), 0.0), 0.75));
    // What is not a number is not measured.
    let nothing = judged(Statement::at_least("", "", 0.0, 1.0), &[f64::NAN]);
    assert_eq!(nothing.verdict(), Verdict::NotMeasured);
    assert_eq!(Tolerance::Exactly.range(PaperFigure::Range(1.0, 1.0)), None);
    assert_eq!(Tolerance::Between(1.0).range(PaperFigure::Value(1.0)), None);
}

/// The intervals of three seeds around bounds on either side.
#[test]
fn an_interval_that_crosses_a_bound_is_undecided() {
    let about = || Statement::within("", "", 10.0, 1.0);
    assert_eq!(judged(about(), &[10.0, 10.1, 10.2]).verdict(), Verdict::Holds);
    assert_eq!(judged(about(), &[10.8, 11.0, 11.2]).verdict(), Verdict::Undecided);
    assert_eq!(judged(about(), &[7.0, 10.0, 13.0]).verdict(), Verdict::Undecided);
    assert_eq!(judged(about(), &[12.0, 12.1, 12.2]).verdict(), Verdict::Differs);
}

/// What `check` says about the sample after a change.
fn fault(change: impl Fn(&mut StudyResult)) -> ResultError {
    let mut result = sample();
    change(&mut result);
    let error = result.check().unwrap_err();
    assert!(!error.to_string().is_empty());
    error
}

#[test]
fn broken_invariants_are_named() {
    for name in ["", "Pbs", "a b", "../up", "a--b", "-a", "a-", "a/b", "ä", "a.b"] {
        let error = fault(|r| name.clone_into(&mut r.study));
        assert_eq!(error, ResultError::StudyName(name.to_owned()));
    }
    let error = fault(|r| r.figures[1].id = "FIG 11".to_owned());
    assert!(matches!(error, ResultError::SameFigure { ref stem, .. } if stem == "fig-11"));
    let error = fault(|r| r.figures[1].id = "…".to_owned());
    assert_eq!(error, ResultError::FigureId("…".to_owned()));
    for range in [(1.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
        let error = fault(|r| r.figures[0].y_range = Some(range));
        assert!(matches!(error, ResultError::YRange { .. }), "{error}");
    }
    let error = fault(|r| r.series[0].figure = "Fig. 12".to_owned());
    assert!(matches!(error, ResultError::UnknownFigure { .. }));
    let error = fault(|r| r.series.push(r.series[0].clone()));
    assert!(matches!(error, ResultError::SameSeries { .. }));
}

#[test]
fn points_that_cannot_be_drawn_are_named() {
    let fault_of =
        |series: usize, point: Point| match fault(|r| r.series[series].points[1] = point.clone()) {
            ResultError::Point { index: 1, what, design, .. } if design == "PBS" => what,
            other => panic!("{other}"),
        };
    assert!(matches!(fault_of(0, (2.0, f64::NAN).into()), PointFault::YNotFinite(_)));
    assert_eq!(fault_of(0, (2.0, f64::INFINITY).into()), PointFault::YNotFinite(f64::INFINITY));
    assert_eq!(
        fault_of(1, ("x", f64::NEG_INFINITY).into()),
        PointFault::YNotFinite(f64::NEG_INFINITY)
    );
    assert!(matches!(fault_of(0, (f64::NAN, 1.0).into()), PointFault::XNotFinite(_)));
    assert_eq!(
        fault_of(0, (1.0, 2.0 * MAGNITUDE_MAX).into()),
        PointFault::YNotFinite(2.0 * MAGNITUDE_MAX)
    );
    assert_eq!(fault_of(0, (0.0, 1.0).into()), PointFault::XNotPositive(0.0));
    assert_eq!(fault_of(0, ("a", 1.0).into()), PointFault::CategoryOnAxis);
    assert_eq!(fault_of(1, (1.0, 1.0).into()), PointFault::NumberInBars);
    assert_eq!(fault_of(1, ("display", 1.0).into()), PointFault::SameCategory);
    let spread = Some(Spread { n: 3, interval: Some((1.0, f64::INFINITY)) });
    let wide = Point::at(2.0, 1.0).with_spread(spread);
    assert_eq!(fault_of(0, wide), PointFault::YNotFinite(f64::INFINITY));
}

#[test]
fn claims_without_usable_numbers_are_named() {
    let fault_of = |claim: Claim| match fault(|r| r.claims[0] = claim.clone()) {
        ResultError::Claim(error) => error.what,
        other => panic!("{other}"),
    };
    let of = |statement| fault_of(judged(statement, &[1.0]));
    assert_eq!(of(Statement::exactly("a", "b", f64::INFINITY)), ClaimFault::Paper);
    assert_eq!(of(Statement::between("a", "b", (2.0, 1.0), 0.0)), ClaimFault::Paper);
    assert_eq!(of(Statement::about("a", "b", 1.0, -0.5)), ClaimFault::Tolerance(-0.5));
}

#[test]
fn a_host_result_must_fit_its_study() {
    let result = sample();
    let mut host = HostResult {
        study: "pbs-tlb".to_owned(),
        host: "a machine".to_owned(),
        figures: vec![Figure::new("Speed", "", FigureKind::Bars, "", "")],
        series: vec![],
        claims: vec![],
        notes: vec![],
    };
    check_pair(&result, Some(&host)).unwrap();
    let text = serde_json::to_string(&host).unwrap();
    assert_eq!(serde_json::from_str::<HostResult>(&text).unwrap(), host);
    host.figures[0].id = "fig-10".to_owned();
    assert!(matches!(check_pair(&result, Some(&host)), Err(ResultError::SameFigure { .. })));
    host.figures.clear();
    host.study = "other".to_owned();
    assert!(matches!(check_pair(&result, Some(&host)), Err(ResultError::OtherStudy { .. })));
}

#[test]
fn figures_are_shown_short() {
    let show = |value| Unit::Number.show(value);
    assert_eq!(show(0.0), "0");
    assert_eq!(show(-0.0), "0");
    assert_eq!(show(1_048_576.0), "1048576");
    assert_eq!(show(-3.0), "−3");
    assert_eq!(show(0.123_456), "0.1235");
    assert_eq!(show(12.3), "12.3");
    assert_eq!(show(9999.96), "10000");
    assert_eq!(show(0.000_012_3), "1.230e−5");
    assert_eq!(show(f64::NAN), "NaN");
    assert_eq!(Unit::Share.show(0.19), "19 %");
    assert_eq!(Unit::Ratio.show(1.93), "1.93×");
    // A difference of shares is in points, a fraction of a share in per cent.
    assert_eq!(Tolerance::Absolute(0.05).describe(Unit::Share), "about, ±5 points");
    assert_eq!(Tolerance::Relative(0.05).describe(Unit::Share), "about, ±5 % of it");
    assert_eq!(Tolerance::AtLeast(0.0).describe(Unit::Share), "at least");
    assert_eq!(Tolerance::AtMost(2.0).describe(Unit::Number), "at most, +2");
}

proptest! {
    #[test]
    fn any_claim_comes_back_with_its_verdict(
        paper in -1e9..1e9f64, measured in -1e9..1e9f64, slack in 0.0..1e9f64, kind in 0..6,
        spread in 0.0..1e9f64,
    ) {
        let statement = match kind {
            0 => Statement::at_least("a", "b", paper, slack),
            1 => Statement::at_most("a", "b", paper, slack),
            2 => Statement::about("a", "b", paper, slack),
            3 => Statement::within("a", "b", paper, slack),
            4 => Statement::exactly("a", "b", paper),
            _ => Statement::between("a", "b", (paper, paper + slack), slack),
        };
        let claim = judged(statement, &[measured, measured + spread, measured - spread]);
        let text = serde_json::to_string(&claim).unwrap();
        let back: Claim = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&back, &claim);
        // Every other verdict is refused, but that of another machine, which
        // no number contradicts.
        let verdict = format!("\"verdict\":\"{}\"", claim.verdict().title());
        for other in Verdict::ALL {
            if [claim.verdict(), Verdict::NotComparable, Verdict::Identity].contains(&other) {
                continue;
            }
            let forged = format!("\"verdict\":\"{}\"", other.title().replace(' ', "-"));
            let forged = text.replace(&verdict, &forged);
            prop_assert!(serde_json::from_str::<Claim>(&forged).is_err(), "{forged}");
        }
    }
}
