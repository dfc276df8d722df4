//! Pages in a browser: values of bars and maps under the pointer and by keys, and what axe-core finds
//! that keeps people from reading them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::report_film::film;
use crate::report_page::{browse, browser, sample, sample_host, written};
use swath_lab::study::results::{Figure, FigureKind, Point, Series, StudyResult};

/// The version that is fetched.
const AXE: &str = "axe-core@4.10.3";

/// The text of axe-core: the file that `SWATH_AXE` names, or a package that is fetched once with npm.
fn axe() -> Option<String> {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("axe-core");
    let file = std::env::var_os("SWATH_AXE").map(PathBuf::from);
    let file = file.unwrap_or_else(|| kept.join("package/axe.min.js"));
    if !file.is_file() {
        std::fs::create_dir_all(&kept).unwrap();
        let packed =
            Command::new("npm").args(["pack", "--silent", AXE]).current_dir(&kept).output();
        let name = packed.ok().filter(|packed| packed.status.success());
        let name = name.map(|packed| String::from_utf8_lossy(&packed.stdout).trim().to_owned());
        let unpacked = name.is_some_and(|name| {
            let done = Command::new("tar").arg("-xzf").arg(name).current_dir(&kept).status();
            done.is_ok_and(|status| status.success())
        });
        if !unpacked {
            println!("skipped: neither SWATH_AXE nor {AXE} from npm");
            return None;
        }
    }
    Some(std::fs::read_to_string(file).unwrap())
}

/// A study with bars, lines, clouds, a map and a film.
fn study() -> StudyResult {
    let mut result = sample();
    result.film = Some(film(512, 6, 5));
    result.figures.push(
        Figure::new("Map", "Memory by section", FigureKind::Map, "section", "in use (share)")
            .with_y_range(0.0, 1.0),
    );
    for (design, used) in [("TRAD", [0.0, 0.25, 1.0]), ("PCAD", [1.0, 0.0, 0.5])] {
        let points = used.into_iter().enumerate().map(|(at, used)| Point::at(at as f64, used));
        result.series.push(Series::new("Map", "section", "used", design, points));
    }
    result
}

/// Puts a script of a test to the end of a page, which the page's own policy allows.
fn with_script(page: &Path, script: &str) -> PathBuf {
    let text = std::fs::read_to_string(page).unwrap();
    let script = format!("<script nonce=\"swath\">{script}</script></body>");
    let (before, after) = text.rsplit_once("</body>").unwrap();
    let file = page.with_file_name(format!("tried-{}", page.file_name().unwrap().display()));
    std::fs::write(&file, format!("{before}{script}{after}")).unwrap();
    file
}

/// The JSON that a page's script left in its element `out`.
fn left(browser: &Path, page: &Path, further: &[&str]) -> serde_json::Value {
    let arguments = further.iter().copied().map(str::to_owned);
    let arguments: Vec<String> = arguments
        .chain(["--virtual-time-budget=20000".to_owned(), "--dump-dom".to_owned()])
        .chain([format!("file://{}", page.display())])
        .collect();
    let dom = browse(browser, &arguments);
    let json = dom.rsplit_once("<pre id=\"out\">");
    let json = json.unwrap_or_else(|| panic!("nothing was left: {dom}")).1;
    let json = json.split_once("</pre>").unwrap().0;
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// Moves the pointer and presses keys over the figures `fig-10` (bars) and `map`.
const ACTS: &str = r#"
addEventListener('load', () => setTimeout(() => {
  const out = {};
  for (const id of ['fig-10', 'map']) {
    const figure = document.querySelector(`figure[id$="${id}"]`), svg = figure.querySelector('svg');
    const place = figure.querySelector('.read'), says = () => figure.querySelector('.reading').textContent;
    const cells = JSON.parse(figure.dataset.cells), [left, top, width, height] = cells.inside;
    const move = (across, down) => {
      const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
      svg.dispatchEvent(new PointerEvent('pointermove', { bubbles: true,
        clientX: box.left + (left + across * width) * scale, clientY: box.top + (top + down * height) * scale }));
      return says();
    };
    const press = key => { place.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })); return says(); };
    place.focus();
    const mine = out[id] = { begins: says(), focus: document.activeElement === place };
    // The middle of the second bar of the first group, of the last of the last; of cells.
    mine.first = move(id === 'map' ? 0.5 : 0.2 * (0.1 + 0.8 * 1.5 / 4), 0.25);
    mine.last = move(id === 'map' ? 0.9 : 0.8 + 0.2 * (0.1 + 0.8 * 3.5 / 4), 0.75);
    mine.marked = figure.querySelectorAll('.mark').length;
    mine.opacity = getComputedStyle(figure.querySelector('.mark')).fillOpacity;
    mine.outside = move(-0.1, 0.5);
    mine.keys = ['ArrowRight', 'ArrowRight', 'ArrowDown', 'End', 'ArrowUp', 'Home', 'Escape'].map(press);
  }
  // As a printer has it.
  for (const sheet of document.styleSheets)
    for (const rule of sheet.cssRules)
      if (rule.media?.mediaText === 'print') rule.media.mediaText = 'all';
  out.printed = getComputedStyle(document.querySelector('.reading')).display;
  const pre = document.createElement('pre');
  pre.id = 'out';
  pre.textContent = JSON.stringify(out);
  document.body.append(pre);
}, 500));
"#;

#[test]
fn a_browser_reads_the_values_of_bars_and_maps() {
    let Some(browser) = browser() else { return };
    let dir = written(&[(study(), None)]);
    let page = with_script(&dir.path().join("pbs-tlb.html"), ACTS);
    let seen = left(&browser, &page, &["--window-size=1280,2000"]);
    let bars = &seen["fig-10"];
    let hint = "Point, tap or press arrow keys for values.";
    assert_eq!((&bars["begins"], &bars["focus"]), (&hint.into(), &true.into()));
    assert_eq!(bars["first"], "RGB to YUV, PCAD: 0.96");
    assert_eq!(bars["last"], "JPEG, PBS: 0.98");
    assert_eq!((&bars["marked"], &bars["outside"]), (&1.into(), &hint.into()));
    // What is under the pointer stays visible; what asks for a pointer is not printed.
    assert_eq!((&bars["opacity"], &seen["printed"]), (&"0.08".into(), &"none".into()));
    let keys = [
        "RGB to YUV, PBS: 0.98",
        "image blending, PBS: 0.98",
        "image blending, TRAD: 0.95",
        "JPEG, TRAD: 0.95",
        "JPEG, PBS: 0.98",
        "RGB to YUV, PBS: 0.98",
        hint,
    ];
    assert_eq!(bars["keys"], serde_json::json!(keys));
    let map = &seen["map"];
    assert_eq!(
        (&map["first"], &map["last"]),
        (&"section 1, TRAD: 0.25".into(), &"section 2, PCAD: 0.5".into())
    );
    let keys = [
        "section 0, PCAD: 1",
        "section 1, PCAD: 0",
        "section 1, TRAD: 0.25",
        "section 2, TRAD: 1",
        "section 2, PCAD: 0.5",
        "section 0, PCAD: 1",
        hint,
    ];
    assert_eq!(map["keys"], serde_json::json!(keys));
}

/// Runs axe over the page, wide and on a phone, with what is folded unfolded.
const AXE_RUNS: &str = r#"
addEventListener('load', () => setTimeout(async () => {
  document.querySelectorAll('details').forEach(one => one.open = true);
  const found = await axe.run(document, { resultTypes: ['violations'] });
  const pre = document.createElement('pre');
  pre.id = 'out';
  pre.textContent = JSON.stringify(found.violations.map(one =>
    [one.id, one.help, one.nodes.slice(0, 5).map(node => node.html.slice(0, 200) + ' ' + (node.any[0]?.message ?? ''))]));
  document.body.append(pre);
}, 1000));
"#;

#[test]
fn nothing_keeps_people_from_reading_the_pages() {
    let Some(browser) = browser() else { return };
    let Some(axe) = axe() else { return };
    let dir = written(&[(study(), Some(sample_host()))]);
    let script = format!("{axe};{AXE_RUNS}");
    for page in ["pbs-tlb.html", "index.html"] {
        let page = with_script(&dir.path().join(page), &script);
        // A window is never as narrow as a phone; a frame is.
        let phone = dir.path().join("phone.html");
        let frame = format!(
            "<!doctype html><iframe src=\"{}\" style=\"width:390px;height:844px\"></iframe>\
             <pre id=\"out\"></pre><script>const wait = setInterval(() => {{\
             const out = document.querySelector('iframe').contentDocument.getElementById('out');\
             if (out) {{ document.getElementById('out').textContent = out.textContent; clearInterval(wait); }}\
             }}, 100)</script>",
            page.file_name().unwrap().display()
        );
        std::fs::write(&phone, frame).unwrap();
        for (shown, scheme) in [(&page, "1"), (&page, "0"), (&phone, "1")] {
            let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
            let found = left(&browser, shown, &["--window-size=1280,2000", &scheme]);
            assert_eq!(found, serde_json::json!([]), "{}, {scheme}", shown.display());
        }
    }
    // That it finds what it should: text as light as its ground.
    let faint = std::fs::read_to_string(dir.path().join("index.html")).unwrap();
    let faint = faint.replace("--text: #23282e", "--text: #e8e8e8");
    std::fs::write(dir.path().join("faint.html"), faint).unwrap();
    let page = with_script(&dir.path().join("faint.html"), &script);
    let found = left(&browser, &page, &["--blink-settings=preferredColorScheme=1"]);
    assert!(found.to_string().contains("color-contrast"), "{found}");
}
