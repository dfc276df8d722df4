//! Films: that the picture shows the maps, that it is small, and that a browser plays, pauses and
//! scrubs it.

use base64::Engine as _;
use swath_lab::film::{COLUMNS, CellUse, Film, Reel};
use swath_lab::report::film::{svg, write};
use swath_lab::report::folder::Folder;
use swath_lab::report::write::{write_index, write_study};

use crate::report_page::{browse, browser, sample};

/// A film of two designs whose cells follow from a small generator.
pub(crate) fn film(cells: usize, moments: usize, seed: u64) -> Film {
    let mut state = seed;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        CellUse::ALL[1 + (state >> 33) as usize % 5].letter()
    };
    let mut map = || -> String {
        // The last cells are a hole at every moment.
        (0..cells)
            .map(|nth| if nth + 10 < cells { next() } else { CellUse::Absent.letter() })
            .collect()
    };
    let mut reel = |design: &str| Reel {
        design: design.to_owned(),
        maps: (0..moments).map(|_| map()).collect(),
    };
    Film {
        title: "two designs".to_owned(),
        caption: "A caption.".to_owned(),
        cell_frames: 512,
        moments: (0..moments).map(|nth| format!("{nth}:00")).collect(),
        reels: vec![reel("Linux"), reel("Adaptive-Buddy, packed + migration")],
    }
}

/// The images of a drawing: columns, rows, and the palette's number of each pixel.
fn images(svg: &str) -> Vec<(usize, usize, Vec<u8>)> {
    let coded = svg.split("data:image/png;base64,").skip(1);
    let image = |coded: &str| {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(coded.split('"').next().unwrap())
            .unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        let pixels = pixels.iter().flat_map(|pair| [pair >> 4, pair & 15]).collect();
        (info.width as usize, info.height as usize, pixels)
    };
    coded.map(image).collect()
}

/// Each pixel of the image is the cell of its map: row by row, moment below moment.
#[test]
fn the_picture_holds_the_maps() {
    let film = film(COLUMNS * 5 + 7, 9, 3);
    let drawing = svg(&film);
    assert!(drawing.starts_with("<svg xmlns=") && drawing.contains("steps(9)"), "{drawing}");
    let images = images(&drawing);
    assert_eq!(images.len(), 2);
    for (reel, (width, height, pixels)) in film.reels.iter().zip(images) {
        assert_eq!((width, height), (COLUMNS, 6 * 9));
        for (moment, map) in reel.maps.iter().enumerate() {
            for (nth, letter) in map.chars().enumerate() {
                let pixel = pixels[moment * 6 * COLUMNS + nth];
                assert_eq!(CellUse::ALL[usize::from(pixel)].letter(), letter, "{moment}, {nth}");
            }
        }
    }
    assert_eq!(svg(&film), drawing, "the same film gives the same bytes");
}

/// Nothing packs less than cells without any order: real memory takes a fifth of it.
#[test]
fn even_noise_is_small() {
    let length = svg(&film(2560, 60, 1)).len();
    assert!(length <= 200_000, "{length} bytes");
}

#[test]
fn hostile_text_stays_text() {
    let mut film = film(64, 2, 1);
    film.reels[0].design = "</title><script>alert(1)</script>\u{1}".to_owned();
    film.moments[1] = "\"'><img src=x>".to_owned();
    film.title = "]]>&amp;".to_owned();
    let drawing = svg(&film);
    assert!(!drawing.contains("<script") && !drawing.contains("<img"), "{drawing}");
    assert!(!drawing.contains('\u{1}') && drawing.contains("&lt;img"));
}

/// A study's film stands in its page and beside its figures, and a wrong one is refused.
#[test]
fn a_study_shows_its_film() {
    let mut result = sample();
    result.film = Some(film(2560, 60, 2));
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::open(dir.path()).unwrap();
    write_study(&folder, &result, None).unwrap();
    write_index(&folder).unwrap();
    let page = std::fs::read_to_string(dir.path().join("pbs-tlb.html")).unwrap();
    assert!(page.contains("id=\"film\"") && page.contains("href=\"pbs-tlb/film.svg\""));
    let alone = std::fs::read_to_string(dir.path().join("pbs-tlb/film.svg")).unwrap();
    assert_eq!(alone, svg(result.film.as_ref().unwrap()));

    result.film.as_mut().unwrap().reels[1].maps.pop();
    let error = write_study(&folder, &result, None).unwrap_err().to_string();
    assert!(error.contains("59 maps of 60 moments"), "{error}");
    result.film = Some(film(64, 1, 1));
    result.figures[0].id = "FILM".to_owned();
    result.series.retain(|series| series.figure != "Fig. 10");
    let error = write_study(&folder, &result, None).unwrap_err().to_string();
    assert!(error.contains("the film") && error.contains("FILM"), "{error}");
}

#[test]
fn a_page_of_another_program_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("film.html");
    std::fs::write(&path, "<h1>mine</h1>").unwrap();
    assert!(write(&path, &film(64, 2, 1)).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "<h1>mine</h1>");
    std::fs::remove_file(&path).unwrap();
    write(&path, &film(64, 2, 1)).unwrap();
    write(&path, &film(64, 3, 1)).unwrap();
}

/// What a reader does with the film, and how the page answers: where the image stands is read from
/// its style.
const ACTS: &str = r#"<script nonce="swath">
addEventListener('load', () => setTimeout(() => {
  const of = word => document.querySelector(word), out = {};
  const button = of('.controls button'), slider = of('.controls input'), words = of('.controls output');
  const shift = () => new DOMMatrix(getComputedStyle(of('.swath-film .roll')).transform).m42;
  const height = Number(of('.swath-film image').getAttribute('height'));
  out.begins = button.textContent;
  const scrub = to => {
    slider.value = to;
    slider.dispatchEvent(new Event('input'));
    return [Math.round(-shift() / height * 8), words.value, button.textContent];
  };
  out.scrubbed = [scrub(5), scrub(0), scrub(7)];
  out.says = slider.getAttribute('aria-valuetext');
  button.focus();
  button.click();
  out.again = button.textContent;
  button.click();
  out.focus = document.activeElement === button;
  out.wide = document.documentElement.scrollWidth <= innerWidth;
  const pre = document.createElement('pre');
  pre.id = 'out';
  pre.textContent = JSON.stringify(out);
  document.body.append(pre);
}, 50));
</script></body>"#;

#[test]
fn a_browser_plays_pauses_and_scrubs_it() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("film.html");
    let film = film(2048, 8, 5);
    write(&path, &film).unwrap();
    let page = std::fs::read_to_string(&path).unwrap().replace("</body>", ACTS);
    std::fs::write(&path, page).unwrap();
    let seen = |scheme: &str| {
        let arguments =
            [scheme, "--window-size=390,900", "--virtual-time-budget=5000", "--dump-dom"];
        let url = format!("file://{}", path.display());
        let arguments: Vec<String> =
            arguments.iter().map(|one| (*one).to_owned()).chain([url]).collect();
        let dom = browse(&browser, &arguments);
        let json = dom.split_once("<pre id=\"out\">").unwrap().1.split_once("</pre>").unwrap().0;
        serde_json::from_str::<serde_json::Value>(json).unwrap()
    };
    let plays = seen("--blink-settings=preferredColorScheme=1");
    assert_eq!(plays["begins"], "Pause");
    let scrubbed =
        serde_json::json!([[5, "5:00", "Play"], [0, "0:00", "Play"], [7, "7:00", "Play"],]);
    assert_eq!(plays["scrubbed"], scrubbed);
    let says = plays["says"].as_str().unwrap();
    assert!(says.starts_with("7:00, Linux: ") && says.contains("the longest run"), "{says}");
    assert_eq!((&plays["again"], &plays["focus"]), (&"Pause".into(), &true.into()));
    assert_eq!(plays["wide"], true, "the page is wider than a phone");
    // Who wants no motion sees the last moment, and may still scrub.
    let still = seen("--force-prefers-reduced-motion");
    assert_eq!((&still["begins"], &still["scrubbed"]), (&"Play".into(), &scrubbed));
}
