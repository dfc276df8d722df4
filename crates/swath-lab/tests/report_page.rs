//! The report's files and its page: what stands in them, that hostile text
//! stays text, and how a browser shows it.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::judged::judged;
use proptest::prelude::*;
use swath_lab::report::figure::{Palette, draw, stand_alone, stylesheet};
use swath_lab::report::folder::{Folder, check_place};
use swath_lab::report::write::{Rendered, find_studies, write_index, write_study};
use swath_lab::study::results::{
    Figure, FigureKind, HostResult, MAGNITUDE_MAX, Place, Point, Series, Statement, StudyResult,
    Unit,
};

fn open(dir: &tempfile::TempDir) -> Folder {
    Folder::open(dir.path()).unwrap()
}

const DESIGNS: [&str; 4] = ["TRAD", "PCAD", "AT", "PBS"];

fn rising(figure: &str, design: &str, top: f64) -> Series {
    let rate = |k: i32| top * (1.0 - 0.7f64.powi(k + 1));
    let points = (0..9).map(|k| (2f64.powi(k), rate(k)));
    Series::new(figure, "free_block_frames", "hit_rate", design, points)
}

/// A study with every kind of figure and claim.
pub(crate) fn sample() -> StudyResult {
    let rate = "TLB hit rate (share of accesses)";
    let workloads = ["RGB to YUV", "image blending", "camera preview", "display", "JPEG"];
    let mut series = Vec::new();
    for (index, design) in DESIGNS.into_iter().enumerate() {
        let share = 0.95 + 0.01 * index as f64;
        series.push(Series::new("Fig. 10", "w", "r", design, workloads.map(|w| (w, share))));
        series.push(rising("Fig. 11", design, share));
        series.push(Series::new(
            "Upright",
            "w",
            "r",
            design,
            (0..9).map(|i| (format!("a long name {i}"), share)),
        ));
    }
    series.push(Series::new(
        "Cloud",
        "a",
        "b",
        "PBS",
        (0..20).map(|i| (f64::from(i), f64::from(i * i % 7))),
    ));
    series.push(Series::new(
        "Cloud",
        "a",
        "b",
        "PBS, best fit",
        (0..20).map(|i| (f64::from(i), f64::from(i * i % 11))),
    ));
    series.push(Series::new("Time", "a", "b", "BBS", [(0.0, -5.0), (1e6, 2.5e7)]));
    let axis = "free block size (pages)";
    StudyResult {
        study: "pbs-tlb".to_owned(),
        title: "TLB hit rates".to_owned(),
        paper: "Author 2023".to_owned(),
        reference: "A. Author, A Title, 2023".to_owned(),
        seed: 7,
        quick: true,
        n: 5,
        plan: serde_json::json!({"sweep": [1, 2, 4]}),
        finding: "Longer blocks hit more.".to_owned(),
        film: None,
        figures: vec![
            Figure::new("Fig. 10", "Raster workloads", FigureKind::Bars, "workload", rate)
                .with_y_range(0.9, 1.0),
            Figure::new("Fig. 11", "Rotated preview", FigureKind::LinesLog2, axis, rate)
                .with_y_range(0.0, 1.0),
            Figure::new("Upright", "Many workloads", FigureKind::Bars, "workload", rate),
            Figure::new("Cloud", "Visits", FigureKind::Scatter, "visits (count)", "nodes (count)"),
            Figure::new("Time", "Over time", FigureKind::Lines, "time (cycles)", "change (bytes)"),
            Figure::new("Nothing", "No series at all", FigureKind::LinesLog2, axis, rate),
        ],
        series,
        fitted: vec!["columns of 128 bytes".to_owned(), "blocks of 16 × 16 pixels".to_owned()],
        claims: vec![
            judged(
                Statement::about("Section V-B, 2", "up to 22% better", 0.22, 0.05)
                    .unit(Unit::Share)
                    .cause("shorter runs"),
                &[0.19],
            ),
            judged(Statement::at_most("Fig. 5", "no more than 2", 2.0, 0.0), &[3.0, 3.0]),
            judged(Statement::exactly("Fig. 6", "3 nodes", 3.0), &[3.0]),
            judged(Statement::at_least("Fig. 7", "10 and more", 10.0, 0.0), &[9.0, 12.0]),
        ],
        notes: vec!["A note.".to_owned()],
    }
}

pub(crate) fn sample_host() -> HostResult {
    HostResult {
        study: "pbs-tlb".to_owned(),
        host: "two cores".to_owned(),
        figures: vec![Figure::new("Speed", "Speed", FigureKind::Bars, "workload", "speed (1/s)")],
        series: vec![Series::new("Speed", "w", "s", "PBS", [("raster", 5.1e7)])],
        claims: vec![judged(
            Statement::at_least("goal", "50 million a second", 5e7, 0.0),
            &[5.1e7],
        )],
        notes: vec![],
    }
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref())
        .unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()))
}

/// Writes these studies' files and page into a new directory.
pub(crate) fn written(studies: &[(StudyResult, Option<HostResult>)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (result, host) in studies {
        write_study(&open(&dir), result, host.as_ref()).unwrap();
    }
    let Rendered { index, left_out, .. } = write_index(&open(&dir)).unwrap();
    assert_eq!(index, dir.path().join("index.html"));
    assert!(left_out.is_empty());
    dir
}

/// The values of all attributes of this name.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let key = format!(" {name}=\"");
    let after = html.split(key.as_str()).skip(1);
    after.map(|rest| rest.split_once('"').map_or(rest, |(value, _)| value)).collect()
}

/// A page without the scripts that its policy allows.
fn without_scripts(html: &str) -> String {
    let mut parts = html.split("<script nonce=\"swath\">");
    let mut text = parts.next().unwrap().to_owned();
    parts.for_each(|part| text += part.split_once("</script>").unwrap().1);
    text
}

/// Checks what must be true of every page, as a string or as a browser's DOM.
fn check_page(html: &str, dir: &Path, figures: usize, claims: usize) {
    let html = &without_scripts(html);
    assert!(!html.contains("<script"), "no script but the page's own");
    for scheme in ["http:", "https:", "//", "url(", "@import"] {
        // The namespace of SVG is a name, not an address; it is not in the page.
        let at = html
            .find(scheme)
            .map(|i| html[i.saturating_sub(60)..].chars().take(120).collect::<String>());
        assert_eq!(at, None, "{scheme} in the page");
    }
    let ids = attributes(html, "id");
    let different: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(different.len(), ids.len(), "ids repeat: {ids:?}");
    for href in attributes(html, "href") {
        match href.strip_prefix('#') {
            Some(id) => assert!(different.contains(id), "{href} leads nowhere"),
            None if href == "data:," => {}
            None => assert!(dir.join(href).is_file(), "{href} is not a file of the report"),
        }
    }
    assert_eq!(html.matches("<figure ").count(), figures);
    assert_eq!(html.matches("<svg ").count(), figures);
    let boxes = attributes(html, "viewBox");
    assert_eq!(boxes.len(), figures);
    for view in boxes {
        let sides: Vec<f64> = view.split(' ').map(|side| side.parse().unwrap()).collect();
        assert!(matches!(sides[..], [0.0, 0.0, w, h] if w > 0.0 && h > 0.0), "{view}");
    }
    assert_eq!(html.matches("<td class=\"judgement\">").count(), claims);
}

#[test]
fn the_page_holds_everything_and_needs_nothing() {
    let dir = written(&[(sample(), Some(sample_host()))]);
    let html = read(dir.path().join("pbs-tlb.html"));
    check_page(&html, dir.path(), 7, 5);
    let total = "<p class=\"total\">2 of 5 claims hold, 2 differs, 1 undecided.</p>";
    assert!(html.contains(total), "the totals over all verdicts");
    assert!(html.contains("<span class=\"badge\">quick, n = 5</span>"), "the form of the run");
    assert!(html.contains("Measured on this machine") && html.contains("two cores"));
    assert!(html.contains("Seed <code>7</code>"));
    assert!(html.contains("prefers-color-scheme"));
}

/// Every claim stands in the index, with its verdict, its paper and a link to its own address.
#[test]
fn the_index_has_all_claims_and_leads_to_them() {
    let dir = written(&[(sample(), Some(sample_host()))]);
    let index = read(dir.path().join("index.html"));
    let page = read(dir.path().join("pbs-tlb.html"));
    let links: Vec<&str> = attributes(&index, "href")
        .into_iter()
        .filter_map(|href| href.strip_prefix("pbs-tlb.html#"))
        .filter(|anchor| anchor.contains("claim-"))
        .collect();
    assert_eq!(links.len(), 5);
    for anchor in links {
        assert!(page.contains(&format!("<tr id=\"{anchor}\"")), "{anchor}");
    }
    assert!(index.contains("✘ differs") && index.contains("Author 2023"));
    assert!(index.contains("<p class=\"total\">2 of 5 claims hold, 2 differs, 1 undecided.</p>"));
}

#[test]
fn claims_are_shown_with_their_verdict_in_words() {
    let dir = written(&[(sample(), None)]);
    let html = read(dir.path().join("pbs-tlb.html"));
    let row = " class=\"differs\"><td><a class=\"anchor\" href=\"#claim-";
    assert!(html.contains(row), "an address of its own");
    assert!(html.contains("\">Section V-B, 2</a>"));
    assert!(html.contains("<p class=\"cause\"><a href=\"#figure-"), "to what shows it");
    let row = "<td class=\"says\">up to 22% better\
        <p class=\"cause\">Cause: shorter runs</p></td>\
        <td class=\"number\" data-label=\"Paper\">22 %</td>\
        <td class=\"number\" data-label=\"Measured\">19 %</td>\
        <td class=\"tolerance\" data-label=\"Tolerance\">about, ±5 % of it</td>\
        <td class=\"judgement\">✘ differs</td></tr>";
    assert!(html.contains(row));
    assert!(html.contains("<p class=\"cause\">Cause: not known yet.</p>"));
    let row = "<td class=\"says\">3 nodes</td>\
        <td class=\"number\" data-label=\"Paper\">3</td>\
        <td class=\"number\" data-label=\"Measured\">3</td>\
        <td class=\"tolerance\" data-label=\"Tolerance\">exactly</td>\
        <td class=\"judgement\">✔ holds</td></tr>";
    assert!(html.contains(row));
    assert!(html.contains("? undecided<p class=\"cause\">the interval crosses the bound</p>"));
    assert!(html.contains(", n = 2</span>"), "the interval");
}

#[test]
fn the_plan_is_shown_as_a_plan_file() {
    let shown = |plan: serde_json::Value| {
        let mut result = sample();
        result.plan = plan;
        let html = read(written(&[(result, None)]).path().join("pbs-tlb.html"));
        let code = html.split_once("<pre tabindex=\"0\"><code>").unwrap().1;
        code.split_once("</code>").unwrap().0.replace("&quot;", "\"")
    };
    let plan = serde_json::json!({"a": 1, "machine": {"frames": [1, 2]}, "z": "last"});
    let text = shown(plan.clone());
    assert_eq!(toml::from_str::<serde_json::Value>(&text).unwrap(), plan, "{text}");
    // TOML has no null.
    let plan = serde_json::json!({"a": null});
    assert_eq!(serde_json::from_str::<serde_json::Value>(&shown(plan.clone())).unwrap(), plan);
}

#[test]
fn rows_are_tidy() {
    let mut result = sample();
    result.series.retain(|s| s.design == "PBS" && s.figure != "Fig. 11");
    result.series.push(Series::new(
        "Fig. 11",
        "a",
        "b",
        "A, \"B\"\nC",
        [(1.0, 0.1 + 0.2), (256.0, 1e-300)],
    ));
    let dir = written(&[(result, None)]);
    let text = read(dir.path().join("pbs-tlb/fig-11.csv"));
    let (third, small) = ((0.1 + 0.2f64).to_string(), 1e-300f64.to_string());
    assert_eq!(
        text,
        format!(
            "figure,design,x,y,n,low,high\n\
             Fig. 11,\"A, \"\"B\"\"\nC\",1,{third},1,{third},{third}\n\
             Fig. 11,\"A, \"\"B\"\"\nC\",256,{small},1,{small},{small}\n"
        )
    );
    let rows = csv::Reader::from_path(dir.path().join("pbs-tlb/fig-10.csv")).unwrap();
    type Row = (String, String, String, f64, u32, f64, f64);
    let rows: Vec<Row> = rows.into_deserialize().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 5);
    let (figure, design) = ("Fig. 10".to_owned(), "PBS".to_owned());
    assert_eq!(rows[0], (figure, design, "RGB to YUV".to_owned(), 0.98, 1, 0.98, 0.98));
}

#[test]
fn the_same_result_gives_the_same_bytes() {
    let (one, two) = (written(&[(sample(), None)]), written(&[(sample(), None)]));
    let mut count = 0;
    for entry in std::fs::read_dir(one.path().join("pbs-tlb")).unwrap() {
        let name = entry.unwrap().file_name();
        let bytes = |dir: &Path| std::fs::read(dir.join("pbs-tlb").join(&name)).unwrap();
        assert!(bytes(one.path()) == bytes(two.path()), "{}", name.display());
        count += 1;
    }
    // Six figures of two files each and the results; nothing temporary stays.
    assert_eq!(count, 13);
    for page in ["index.html", "pbs-tlb.html"] {
        assert_eq!(read(one.path().join(page)), read(two.path().join(page)));
    }
}

#[test]
fn an_old_host_result_goes_away_and_results_are_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let (result, host) = (sample(), sample_host());
    write_study(&open(&dir), &result, Some(&host)).unwrap();
    assert_eq!(find_studies(dir.path()).unwrap().0[0].host.as_ref(), Some(&host));
    write_study(&open(&dir), &result, None).unwrap();
    let found = find_studies(dir.path()).unwrap().0;
    assert_eq!((&found[0].result, found[0].host.as_ref()), (&result, None));
}

#[test]
fn a_wrong_result_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut result = sample();
    result.series[1].points[3] = (8.0, f64::NAN).into();
    let error = write_study(&open(&dir), &result, None).unwrap_err().to_string();
    for word in ["pbs-tlb", "Fig. 11", "point 3", "NaN"] {
        assert!(error.contains(word), "{word} in {error}");
    }
    assert!(!dir.path().join("pbs-tlb").exists());
}

#[test]
fn errors_name_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("pbs-tlb");
    // A file where the directory should be.
    std::fs::write(&place, "").unwrap();
    let error = write_study(&open(&dir), &sample(), None).unwrap_err().to_string();
    assert!(error.contains(place.to_str().unwrap()), "{error}");
    std::fs::remove_file(&place).unwrap();
    // A result cut short.
    write_study(&open(&dir), &sample(), None).unwrap();
    let file = place.join("results.json");
    let text = read(&file);
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    let left_out = || write_index(&open(&dir)).unwrap().left_out[0].to_string();
    let error = left_out();
    assert!(error.contains(file.to_str().unwrap()) && error.contains("line"), "{error}");
    // A result under another study's name.
    std::fs::write(&file, &text).unwrap();
    std::fs::rename(&place, dir.path().join("other")).unwrap();
    let error = left_out();
    assert!(error.contains("other") && error.contains("pbs-tlb"), "{error}");
}

/// Every value of a result in turn becomes another: whatever that breaks, the other study
/// has its section.
#[test]
fn a_broken_result_costs_its_own_section_alone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = open(&dir);
    let mut other = sample();
    other.study = "whole".to_owned();
    write_study(&folder, &other, None).unwrap();
    write_study(&folder, &sample(), Some(&sample_host())).unwrap();
    let hostile = ["null", "-1", "1e300", "1e999", "\"\"", "[]", "{}", "[[1e-320, 1e300]]", "true"];
    for name in ["results.json", "host.json"] {
        let file = dir.path().join("pbs-tlb").join(name);
        let text = read(&file);
        let places = text.match_indices(": ").map(|(at, _)| at + 2);
        let ends = |at: usize| at + text[at..].find(['\n', ',']).unwrap();
        for (nth, at) in places.enumerate() {
            let value = hostile[nth % hostile.len()];
            std::fs::write(&file, format!("{}{value}{}", &text[..at], &text[ends(at)..])).unwrap();
            let Rendered { studies, .. } = write_index(&folder).unwrap();
            assert!(studies.iter().any(|study| study == "whole"), "{value} at {at} of {name}");
        }
        std::fs::write(&file, &text).unwrap();
    }
    assert_eq!(write_index(&folder).unwrap().studies.len(), 2);
}

/// As many large clouds of two designs as the study with the most of them has.
#[test]
fn a_page_full_of_clouds_is_small() {
    let mut result = sample();
    (result.figures, result.series) = (Vec::new(), Vec::new());
    for nth in 0..8 {
        let id = format!("Cloud {nth}");
        result.figures.push(Figure::new(&id, "times", FigureKind::Scatter, "size", "time"));
        for (design, factor) in [("regions", 37), ("conventional", 91)] {
            let points = (0..2000).map(|i| (f64::from(i), f64::from(i * factor % 1009)));
            result.series.push(Series::new(&id, "a", "b", design, points));
        }
    }
    let page = read(written(&[(result, None)]).path().join("pbs-tlb.html"));
    assert!(page.len() <= 300_000, "{} bytes", page.len());
}

#[test]
fn a_page_of_another_program_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    write_study(&open(&dir), &sample(), None).unwrap();
    let page = dir.path().join("index.html");
    std::fs::write(&page, "<html>my own</html>").unwrap();
    for error in [check_place(dir.path()).unwrap_err(), Folder::open(dir.path()).unwrap_err()] {
        let error = error.to_string();
        assert!(error.contains(page.to_str().unwrap()) && error.contains("--out"), "{error}");
    }
    assert_eq!(read(&page), "<html>my own</html>");
    // A page of ours is.
    std::fs::remove_file(&page).unwrap();
    write_index(&open(&dir)).unwrap();
    check_place(dir.path()).unwrap();
    write_index(&open(&dir)).unwrap();
}

/// Text that would break out of every context if it were not escaped.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;</style></svg>]]>\u{0}\u{b}\u{ffff}";

/// The sample with hostile text in every field that takes text.
fn hostile() -> (StudyResult, HostResult) {
    let mut result = sample();
    let bad = || HOSTILE.to_owned();
    for text in [&mut result.title, &mut result.paper, &mut result.reference, &mut result.finding] {
        *text = bad();
    }
    result.plan = serde_json::json!({HOSTILE: HOSTILE});
    result.notes = vec![bad()];
    let rename = |figures: &mut [Figure], series: &mut [Series]| {
        for (index, figure) in figures.iter_mut().enumerate() {
            let id = format!("{index}{HOSTILE}");
            for one in series.iter_mut().filter(|s| s.figure == figure.id) {
                one.figure.clone_from(&id);
                one.design += HOSTILE;
                for point in &mut one.points {
                    if let Place::In(category) = &mut point.x {
                        *category += HOSTILE;
                    }
                }
            }
            figure.id = id;
            for text in
                [&mut figure.title, &mut figure.x_label, &mut figure.y_label, &mut figure.caption]
            {
                *text = bad();
            }
        }
    };
    rename(&mut result.figures, &mut result.series);
    result.claims = vec![judged(Statement::exactly(HOSTILE, HOSTILE, 1.0).cause(HOSTILE), &[2.0])];
    let mut host = sample_host();
    host.host = bad();
    host.notes = vec![bad()];
    host.figures[0].id = "host".to_owned();
    host.series[0].figure = "host".to_owned();
    rename(&mut host.figures, &mut host.series);
    host.figures[0].id.insert(0, 'h');
    host.series[0].figure.insert(0, 'h');
    (result, host)
}

#[test]
fn hostile_text_stays_text() {
    let (result, host) = hostile();
    let dir = written(&[(result, Some(host))]);
    let html = read(dir.path().join("pbs-tlb.html"));
    check_page(&html, dir.path(), 7, 2);
    assert!(!html.contains("<img"), "no image");
    assert_eq!(html.matches("</style>").count(), 2, "the page's and the library's");
    assert_eq!(html.matches("</svg>").count(), 7);
    for found in find_studies(dir.path()).unwrap().0 {
        for figure in &found.result.figures {
            let svg = read(dir.path().join("pbs-tlb").join(figure.file_stem() + ".svg"));
            assert!(!svg.contains("<script") && !svg.contains("<img"), "{svg}");
            assert!(!svg.contains(['\u{0}', '\u{b}', '\u{ffff}']), "characters that XML forbids");
            assert_eq!(svg.matches("</svg>").count(), 1);
        }
    }
}

fn drawing(kind: FigureKind, points: Vec<Point>) -> String {
    let figure = Figure::new("f", "t", kind, "x", "y");
    draw(&figure, &[Series::new("f", "x", "y", "PBS", points)], &Palette::new(["PBS"])).unwrap()
}

/// The text of all labels in a drawing.
fn labels(svg: &str) -> Vec<&str> {
    let after = svg.split("<text ").skip(1);
    after.map(|rest| rest.split_once('>').unwrap().1.split_once("</text>").unwrap().0).collect()
}

#[test]
fn a_log2_axis_has_the_papers_ticks() {
    let svg = draw(&sample().figures[1], &sample().series, &Palette::new(DESIGNS)).unwrap();
    let labels = labels(&svg);
    for tick in
        ["1", "2", "4", "8", "16", "32", "64", "128", "256", "0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    {
        assert_eq!(
            labels.iter().filter(|label| **label == tick).count(),
            1,
            "{tick} in {labels:?}"
        );
    }
    for design in DESIGNS {
        assert!(labels.contains(&design));
    }
    assert!(svg.starts_with("<svg class=\"swath-figure\" viewBox=\"0 0 4000 "));
    assert!(svg.contains("<title>Fig. 11: Rotated preview</title><desc>Lines over a logarithmic"));
}

#[test]
fn designs_look_the_same_in_every_figure_and_differ_from_each_other() {
    let result = sample();
    let palette = Palette::new(result.series.iter().map(|s| s.design.as_str()));
    for figure in &result.figures {
        for (design, colour) in [("PBS", "#CC5100"), ("TRAD", "#5B6470"), ("BBS", "#954884")] {
            let mine: Vec<Series> = result
                .series
                .iter()
                .filter(|s| s.figure == figure.id && s.design == design)
                .cloned()
                .collect();
            let svg = draw(figure, &mine, &palette).unwrap();
            assert_eq!(svg.contains(colour), !mine.is_empty(), "{} {design}", figure.id);
        }
    }
    // Every colour of a drawing has its counterpart in the dark scheme.
    let rules = stylesheet();
    for figure in &result.figures {
        let svg = draw(figure, &result.series, &palette).unwrap();
        for name in ["fill", "stroke"] {
            for colour in attributes(&svg, name).into_iter().filter(|c| *c != "none") {
                assert!(rules.contains(&format!("[{name}=\"{colour}\"]{{{name}:#")), "{colour}");
            }
        }
    }
}

/// Where only colour tells designs apart, eleven differ; and a study's own
/// designs take no colour of the paper's that are in it.
#[test]
fn no_two_of_eleven_designs_share_a_colour() {
    for known in [&["TRAD", "PBS"][..], &[]] {
        let others: Vec<String> = (known.len()..11).map(|n| format!("design {n}")).collect();
        let names: Vec<&str> =
            known.iter().copied().chain(others.iter().map(String::as_str)).collect();
        let palette = Palette::new(names.iter().copied());
        for kind in [FigureKind::Bars, FigureKind::Map] {
            let point = || match kind {
                FigureKind::Bars => Point::named("c", 1.0),
                _ => Point::at(0.0, 1.0),
            };
            let series: Vec<Series> =
                names.iter().map(|name| Series::new("f", "x", "y", name, [point()])).collect();
            let svg = draw(&Figure::new("f", "t", kind, "x", "y"), &series, &palette).unwrap();
            let mut colours = attributes(&svg, "fill");
            colours.retain(|colour| !["none", "#FFFFFF", "#2B3036"].contains(colour));
            // Each in the legend and in the plot.
            assert_eq!(colours.len(), 2 * names.len(), "{colours:?}");
            colours.sort_unstable();
            colours.dedup();
            assert_eq!(colours.len(), names.len(), "{kind:?} {colours:?}");
        }
    }
}

/// Every word of every name is in the legend, however long the names are.
#[test]
fn a_long_name_goes_on_in_the_next_row() {
    let name = "Adaptive-Buddy, packed + migration: memory of the banks that were emptied";
    for kind in [FigureKind::Lines, FigureKind::Scatter, FigureKind::Map] {
        let series = ["PBS", name, "TRAD"]
            .map(|name| Series::new("f", "x", "y", name, [Point::at(1.0, 1.0)]));
        let svg = draw(&Figure::new("f", "t", kind, "x", "y"), &series, &Palette::default());
        let svg = svg.unwrap();
        let shown = labels(&svg).join(" ");
        for word in name.split(' ').chain(["PBS", "TRAD"]) {
            assert!(shown.contains(word), "{word} is not in {shown}");
        }
        assert!(!shown.contains('…'), "{shown}");
        check_inside(&svg).unwrap();
    }
}

#[test]
fn little_data_is_drawn_too() {
    assert!(labels(&drawing(FigureKind::Lines, vec![])).contains(&"no data"));
    assert!(labels(&drawing(FigureKind::Bars, vec![])).contains(&"no data"));
    let one = drawing(FigureKind::LinesLog2, vec![(4.0, 3.0).into()]);
    assert!(labels(&one).contains(&"4") && labels(&one).contains(&"3.0"));
    let flat = drawing(FigureKind::Lines, (0..5).map(|i| (f64::from(i), 7.25).into()).collect());
    assert!(labels(&flat).contains(&"7.2") && !flat.contains("NaN"));
    let zero = drawing(FigureKind::Scatter, vec![(0.0, 0.0).into()]);
    assert!(labels(&zero).contains(&"0.2") && !zero.contains("NaN"));
    let many = drawing(FigureKind::LinesLog2, vec![(1.0, 0.0).into(), (2f64.powi(40), 1.0).into()]);
    assert!(labels(&many).len() < 24, "{:?}", labels(&many));
}

#[test]
fn a_range_that_hides_points_is_widened() {
    let figure = Figure::new("f", "t", FigureKind::Lines, "x", "y").with_y_range(0.0, 1.0);
    let series = [Series::new("f", "x", "y", "PBS", [(0.0, 0.5), (1.0, 3.0)])];
    let svg = draw(&figure, &series, &Palette::default()).unwrap();
    assert!(labels(&svg).contains(&"3"), "{:?}", labels(&svg));
}

/// All coordinates of lines, markers and bars lie in the picture.
fn check_inside(svg: &str) -> Result<(), TestCaseError> {
    let view: Vec<f64> =
        attributes(svg, "viewBox")[0].split(' ').map(|v| v.parse().unwrap()).collect();
    let inside = |text: &str, end: f64| -> Result<(), TestCaseError> {
        let value: f64 =
            text.parse().map_err(|_| TestCaseError::fail(format!("{text} is no number")))?;
        prop_assert!((0.0..=end).contains(&value), "{} outside {}", value, end);
        Ok(())
    };
    for points in attributes(svg, "points") {
        for pair in points.split_whitespace() {
            let (x, y) = pair.split_once(',').unwrap();
            inside(x, view[2])?;
            inside(y, view[3])?;
        }
    }
    for (name, end) in [
        ("x", view[2]),
        ("x1", view[2]),
        ("x2", view[2]),
        ("cx", view[2]),
        ("width", view[2]),
        ("y", view[3]),
        ("y1", view[3]),
        ("y2", view[3]),
        ("cy", view[3]),
        ("height", view[3]),
    ] {
        for value in attributes(svg, name) {
            inside(value, end)?;
        }
    }
    Ok(())
}

fn number() -> impl Strategy<Value = f64> {
    use proptest::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
    let any = (POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO)
        .prop_filter("drawable", |v| v.abs() <= MAGNITUDE_MAX);
    prop_oneof![
        any,
        -1e3..1e3f64,
        0.999_999_999..1.000_000_001f64,
        Just(0.0),
        Just(1e15 + 1.0),
        Just(1e15)
    ]
}

proptest! {
    #[test]
    fn any_finite_data_are_drawn_inside_the_picture(
        points in prop::collection::vec((number(), number()), 0..6),
        kind in prop_oneof![
            Just(FigureKind::Lines), Just(FigureKind::LinesLog2), Just(FigureKind::Scatter),
            Just(FigureKind::Bars), Just(FigureKind::Map),
        ],
        range in prop::option::of((number(), number())),
    ) {
        let points: Vec<Point> = points.into_iter().enumerate().map(|(index, (x, y))| match kind {
            FigureKind::Bars | FigureKind::Table => (format!("category {index}"), y).into(),
            FigureKind::LinesLog2 => (x.abs().max(f64::MIN_POSITIVE), y).into(),
            FigureKind::Lines | FigureKind::Scatter | FigureKind::Map => (x, y).into(),
        }).collect();
        let mut figure = Figure::new("f", "t", kind, "x", "y");
        figure.y_range = range.filter(|(low, high)| low < high);
        let svg = draw(&figure, &[Series::new("f", "x", "y", "PBS", points)], &Palette::default()).unwrap();
        check_inside(&svg)?;
        prop_assert!(labels(&svg).len() < 60);
    }
}

/// A long line keeps a few markers; a map draws the cells that are not empty,
/// the fuller the less of the paper shows through.
#[test]
fn long_lines_and_maps() {
    let figure = |kind| Figure::new("f", "t", kind, "x", "y");
    let line: Vec<Point> = (0..1000).map(|x| (f64::from(x), 1.0).into()).collect();
    let series = [Series::new("f", "x", "y", "PBS", line)];
    let svg = draw(&figure(FigureKind::Lines), &series, &Palette::default()).unwrap();
    // The markers are the subpaths of one path that closes each.
    let closed = svg.lines().find(|line| line.starts_with("<path") && line.contains('z')).unwrap();
    let markers = closed.matches('M').count();
    assert!((10..=45).contains(&markers), "{markers} markers");

    let row = |name, ys: [f64; 3]| {
        let points = ys.into_iter().enumerate().map(|(x, y)| Point::at(x as f64, y));
        Series::new("f", "section", "used_share", name, points)
    };
    let series = [row("TRAD", [0.0, 0.01, 1.0]), row("PCAD", [1.0, 0.0, 0.5])];
    let svg = draw(&figure(FigureKind::Map), &series, &Palette::default()).unwrap();
    // The surface, two squares of the legend, four cells.
    assert_eq!(svg.matches("<rect").count(), 1 + 2 + 4, "{svg}");
    assert!(svg.contains("opacity=\"0.16\"") && svg.contains("opacity=\"0.58\""), "{svg}");
}

/// A table stands in the page as one, with a dash where a design has no value, and has rows as
/// CSV but no drawing.
#[test]
fn a_table_is_a_table() {
    let mut result = sample();
    result.figures = vec![Figure::new("T <1>", "worst", FigureKind::Table, "call", "words")];
    let column =
        |name, points: Vec<(&str, f64)>| Series::new("T <1>", "call", "words", name, points);
    result.series = vec![
        column("PBS", vec![("get", 3.0), ("put & get", 1_048_576.0)]),
        column("BBS", vec![("put & get", 2.5), ("find", 7.0)]),
    ];
    let dir = written(&[(result.clone(), None)]);
    let html = read(dir.path().join("pbs-tlb.html"));
    let table = html.split("aria-label=\"T &lt;1&gt;: worst\"").nth(1).unwrap();
    let table = table.split_once("</div>").unwrap().0;
    let texts: Vec<&str> =
        table.split('>').skip(1).filter_map(|part| part.split('<').next()).collect();
    let texts: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    let expected = [
        "call",
        "PBS",
        "BBS",
        "get",
        "3",
        "–",
        "put &amp; get",
        "1048576",
        "2.5",
        "find",
        "–",
        "7",
        "words",
    ];
    assert_eq!(texts, expected, "{table}");
    assert!(html.contains("pbs-tlb/t-1.csv") && !html.contains("pbs-tlb/t-1.svg"));
    assert!(dir.path().join("pbs-tlb/t-1.csv").is_file());
    assert!(!dir.path().join("pbs-tlb/t-1.svg").exists());
    result.series[0].points.push(Point::at(1.0, 1.0));
    assert!(result.check().is_err(), "a number is no row");
}

pub(crate) fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
    let all = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    let found = all.into_iter().find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: no Chromium in PATH ({})", names.join(", "));
    }
    found
}

/// Runs a headless browser to its end and gives what it printed.
pub(crate) fn browse(browser: &Path, arguments: &[String]) -> String {
    let profile = tempfile::tempdir().unwrap();
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--allow-file-access-from-files",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let (done, printed) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).unwrap();
        done.send(bytes).unwrap();
    });
    let Ok(bytes) = printed.recv_timeout(Duration::from_secs(120)) else {
        child.kill().unwrap();
        panic!("the browser does not end: {arguments:?}");
    };
    reader.join().unwrap();
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    String::from_utf8(bytes).unwrap()
}

/// Shows the page without scripts in frames of two widths, and measures there.
const PROBE: &str = r#"<!doctype html><meta charset="utf-8"><body>
<iframe sandbox="allow-same-origin" src="pbs-tlb.html" style="border:0;width:400px;height:2000px"></iframe>
<iframe sandbox="allow-same-origin" src="pbs-tlb.html" style="border:0;width:1280px;height:2000px"></iframe>
<pre id="out"></pre><script>
addEventListener('load', () => {
  const frames = [...document.querySelectorAll('iframe')].map(frame => {
    const page = frame.contentDocument, root = page.documentElement;
    const figures = [...page.querySelectorAll('figure svg')].map(svg => {
      const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
      const texts = [...svg.querySelectorAll('text')];
      const rects = texts.map(t => t.getBoundingClientRect());
      const fonts = texts.map(t => parseFloat(getComputedStyle(t).fontSize) * scale);
      const overlaps = [], outside = [];
      rects.forEach((a, i) => {
        if (a.left < box.left - 1 || a.right > box.right + 1 || a.top < box.top - 1 || a.bottom > box.bottom + 1)
          outside.push(texts[i].textContent);
        rects.slice(i + 1).forEach((b, j) => {
          // Line boxes are taller than letters: only an overlap of some pixels counts.
          if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
              Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
            overlaps.push(texts[i].textContent + ' / ' + texts[i + 1 + j].textContent);
        });
      });
      return {id: svg.closest('figure').id, width: box.width, height: box.height,
        font: Math.min(...fonts), overlaps, outside, ground: getComputedStyle(svg.querySelector('rect')).fill};
    });
    return {width: frame.clientWidth, content: root.scrollWidth, height: root.scrollHeight,
      loads: frame.contentWindow.performance.getEntriesByType('resource').map(e => e.name),
      text: getComputedStyle(page.body).color, figures};
  });
  document.getElementById('out').textContent = JSON.stringify(frames);
});
</script>"#;

#[derive(serde::Deserialize)]
struct Frame {
    width: f64,
    content: f64,
    height: f64,
    loads: Vec<String>,
    text: String,
    figures: Vec<Shown>,
}

#[derive(serde::Deserialize)]
struct Shown {
    id: String,
    width: f64,
    height: f64,
    font: f64,
    overlaps: Vec<String>,
    outside: Vec<String>,
    ground: String,
}

fn probe(browser: &Path, dir: &Path, further: &str) -> Vec<Frame> {
    std::fs::write(dir.join("probe.html"), PROBE).unwrap();
    let url = format!("file://{}", dir.join("probe.html").display());
    let dom = browse(
        browser,
        &[
            further.to_owned(),
            "--virtual-time-budget=20000".to_owned(),
            "--dump-dom".to_owned(),
            url,
        ],
    );
    let json = dom.split_once("<pre id=\"out\">").unwrap().1.split_once("</pre>").unwrap().0;
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

#[test]
fn a_browser_shows_the_page_light_and_dark_wide_and_narrow() {
    let Some(browser) = browser() else { return };
    let dir = written(&[(sample(), Some(sample_host()))]);
    let url = format!("file://{}", dir.path().join("pbs-tlb.html").display());
    let wait = "--virtual-time-budget=5000".to_owned();
    let dom = browse(&browser, &["--dump-dom".to_owned(), wait, url.clone()]);
    let drawn = dom.matches("class=\"drawn\"").count();
    assert_eq!(drawn, 3, "lines and clouds with points are drawn anew");

    let image = dir.path().join("page.png");
    browse(
        &browser,
        &[format!("--screenshot={}", image.display()), "--window-size=1280,2000".to_owned(), url],
    );
    let png = std::fs::read(&image).unwrap();
    assert!(png.starts_with(b"\x89PNG") && png.len() > 50_000, "{} bytes", png.len());

    let schemes = [
        ("--blink-settings=preferredColorScheme=1", "rgb(255, 255, 255)"),
        ("--blink-settings=preferredColorScheme=0", "rgb(26, 29, 33)"),
    ];
    let mut colours = BTreeSet::new();
    for (scheme, ground) in schemes {
        let frames = probe(&browser, dir.path(), scheme);
        assert_eq!(frames.iter().map(|f| f.width).collect::<Vec<_>>(), [400.0, 1280.0]);
        for frame in frames {
            assert!(frame.content <= frame.width, "{} px wide at {}", frame.content, frame.width);
            assert!(frame.height > 2000.0);
            assert_eq!(frame.loads, Vec::<String>::new(), "the page loads something");
            assert_eq!(frame.figures.len(), 7);
            colours.insert(frame.text);
            for shown in frame.figures {
                let at = format!("{} at {} px", shown.id, frame.width);
                assert!(shown.width > 300.0 && shown.height > 200.0, "{at}");
                assert!(shown.font >= 12.0, "{at}: text of {} px", shown.font);
                assert_eq!(shown.overlaps, Vec::<String>::new(), "{at}");
                assert_eq!(shown.outside, Vec::<String>::new(), "{at}");
                assert_eq!(shown.ground, ground, "{at}");
            }
        }
    }
    assert_eq!(colours.len(), 2, "text has a colour in each scheme");
}

#[test]
fn a_browser_reads_hostile_files_as_the_text_they_are() {
    let Some(browser) = browser() else { return };
    let (result, host) = hostile();
    let dir = written(&[(result.clone(), Some(host))]);
    let url = format!("file://{}", dir.path().join("pbs-tlb.html").display());
    let dom = browse(&browser, &["--dump-dom".to_owned(), url]);
    let dom = without_scripts(&dom);
    assert!(!dom.contains("<script") && !dom.contains("<img"));
    assert_eq!(dom.matches("<svg ").count(), 7);

    // As a file of its own a drawing is XML, where one wrong character is fatal.
    let palette = Palette::new(result.series.iter().map(|s| s.design.as_str()));
    let svg = stand_alone(&draw(&result.figures[0], &result.series, &palette).unwrap());
    let file = dir.path().join("alone.svg");
    std::fs::write(&file, svg).unwrap();
    let dom = browse(&browser, &["--dump-dom".to_owned(), format!("file://{}", file.display())]);
    assert!(dom.contains("swath-figure") && !dom.contains("parsererror"), "{dom}");
}
