//! results.json and host.json.

use swath_lab::report::figure::draw;
use swath_lab::report::palette::Palette;
use swath_lab::study::results::{HostResult, StudyResult, check_pair};

/// Reads results; those that are taken are drawn, written and read again.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A host's result follows behind a zero, if one does.
    let (text, host) = text.split_once('\0').unwrap_or((text, ""));
    let host: Option<HostResult> = serde_json::from_str(host).ok();
    if let Some(host) = &host
        && host.check().is_ok()
    {
        let again = serde_json::to_string(host).expect("numbers and words");
        assert_eq!(&serde_json::from_str::<HostResult>(&again).expect("our own"), host);
    }
    let Ok(result) = serde_json::from_str::<StudyResult>(text) else { return };
    let again = serde_json::to_string(&result).expect("numbers and words");
    assert_eq!(serde_json::from_str::<StudyResult>(&again).expect("our own"), result);
    let is_sound = check_pair(&result, host.as_ref()).is_ok();
    if is_sound {
        assert_eq!(result.check(), Ok(()), "a pair is sound and the result alone is not");
    }
    let palette = Palette::new(result.series.iter().map(|series| series.design.as_str()));
    for figure in &result.figures {
        let drawn = draw(figure, &result.series, &palette);
        assert!(drawn.is_ok() || !is_sound, "{:?} of what was checked", drawn.err());
    }
}
