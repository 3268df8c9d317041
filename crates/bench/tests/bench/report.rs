//! The report: what a browser shows, how runs are compared, and what the documents show of them.

use super::{bench, run, text};
use ginnel_tests::browser::Browser;
use std::path::Path;

/// The page without a complaint, on a phone and a screen, light and dark: charts drawn, nothing
/// from elsewhere, nothing outside.
pub(super) fn in_a_browser(out: &Path) {
    const INSIDE: &str = "[...document.querySelectorAll('svg')].every((svg) => {
        const all = svg.getBoundingClientRect();
        return all.width > 200 && [...svg.querySelectorAll('circle')].every((dot) => {
            const at = dot.getBoundingClientRect();
            return at.left >= all.left && at.right <= all.right && at.top >= all.top && at.bottom <= all.bottom;
        });
    })";
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&format!("file://{}", out.join("report.html").display()));
    assert_eq!(
        browser.ask("document.querySelector('h1').textContent"),
        "Transports compared on <b>me</b>"
    );
    for chart in [
        "latency",
        "latency-tails",
        "latency-paused",
        "bandwidth",
        "bandwidth-both",
        "cpu",
        "cpu-rate",
        "connections",
        "pairs",
        "rings",
    ] {
        assert!(out.join("charts").join(chart).with_extension("svg").exists(), "{chart}");
        let lines = browser.ask(&format!("document.querySelectorAll('#{chart} polyline').length"));
        assert!(lines.as_u64() >= Some(1), "{chart}: {lines} lines");
    }
    in_every_size(&mut browser, INSIDE);
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    assert!(
        browser.requests().all(|url| url.starts_with("file://")),
        "{:?}",
        browser.requests().collect::<Vec<_>>()
    );
    // A chart alone, which brings its colours.
    browser.call(
        "Page.navigate",
        serde_json::json!({"url": format!("file://{}", out.join("charts/latency.svg").display())}),
    );
    browser.wait(
        "document.querySelector('.c2 .line') && getComputedStyle(document.querySelector('.c2 .line')).stroke === 'rgb(194, 84, 0)'",
    );
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

/// `inside`: that nothing of a chart is outside of it.
fn in_every_size(browser: &mut Browser, inside: &str) {
    for (width, scheme) in [(390, "light"), (390, "dark"), (1200, "light"), (1200, "dark")] {
        browser.show(width, scheme);
        browser.wait(inside);
        assert_eq!(
            browser.ask("document.documentElement.scrollWidth <= innerWidth"),
            true,
            "{width} {scheme}: it scrolls sideways"
        );
        let ground = browser.ask("getComputedStyle(document.body).backgroundColor");
        assert_eq!(ground, if scheme == "dark" { "rgb(22, 24, 28)" } else { "rgb(255, 255, 255)" });
        assert_eq!(
            ground,
            browser.ask("getComputedStyle(document.querySelector('.ground')).fill"),
            "{scheme}: the charts'"
        );
        if let Some(directory) = std::env::var_os("GINNEL_SHOTS") {
            let shot = browser
                .call("Page.captureScreenshot", serde_json::json!({"captureBeyondViewport": true}))
                ["data"]
                .clone();
            let file = Path::new(&directory).join(format!("bench-{width}-{scheme}.png.base64"));
            std::fs::write(file, shot.as_str().expect("base64")).expect("written");
        }
    }
}

#[test]
fn runs_are_compared_and_only_what_is_beyond_the_noise_is_marked() {
    let folder = tempfile::tempdir().expect("a directory");
    let [one, two, both] = ["one", "two", "both"].map(|name| folder.path().join(name));
    let options = [
        "--pattern",
        "latency",
        "--transport",
        "unix,pipes",
        "--sizes",
        "64",
        "--seconds",
        "0.02",
        "--pin",
        "none",
    ];
    let output =
        run(bench().args(options).args(["--rounds", "3", "--name", "one", "--out"]).arg(&one));
    assert!(output.status.success(), "{}", text(&output));
    // The same run, with Unix sockets a hundred times slower.
    std::fs::create_dir(&two).expect("a directory");
    let about = std::fs::read_to_string(one.join("run.json")).expect("run.json");
    std::fs::write(two.join("run.json"), about.replace("\"name\": \"one\"", "\"name\": \"two\""))
        .expect("written");
    let mut reader = csv::Reader::from_path(one.join("samples.csv")).expect("samples");
    let mut writer = csv::Writer::from_path(two.join("samples.csv")).expect("samples");
    let head = reader.headers().expect("a head").clone();
    writer.write_record(&head).expect("written");
    for line in reader.records() {
        let line = line.expect("a line");
        let slow = line.iter().any(|field| field == "unix");
        let fields = head.iter().zip(&line).map(|(name, field)| match field.parse::<f64>() {
            Ok(number) if slow && name == "value" => (100.0 * number).to_string(),
            _ => field.to_owned(),
        });
        writer.write_record(fields).expect("written");
    }
    writer.flush().expect("written");
    let output = run(bench().arg("report").args([&one, &two]).arg("--out").arg(&both));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let line = |what: &str| {
        said.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}: {said}"))
    };
    assert!(
        line("Unix socket").contains("WORSE") && line("Unix socket").contains("+9900"),
        "{said}"
    );
    assert!(line("pipes").contains("+0.0 %") && !line("pipes").contains("WORSE"), "{said}");
    assert!(both.join("report.html").exists() && both.join("charts/latency-tails.svg").exists());
}

/// What README.md and docs/measurements.md show is what the recorded runs make of them.
#[test]
fn documents_show_the_recorded_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository");
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(folder.path().join("docs")).expect("a directory");
    std::os::unix::fs::symlink(root.join("benchmarks"), folder.path().join("benchmarks"))
        .expect("a link");
    let read = |place: &Path| {
        std::fs::read_to_string(place)
            .unwrap_or_else(|error| panic!("{}: {error}", place.display()))
    };
    for name in ["namespaces", "guests"] {
        let documents: &[&str] = if name == "guests" {
            &["docs/measurements.md"]
        } else {
            &["docs/measurements.md", "README.md"]
        };
        let runs = std::fs::read_dir(root.join("benchmarks"))
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name());
        let runs = runs
            .filter_map(|run| run.into_string().ok())
            .filter(|run| run.ends_with(&format!("-{name}")));
        let Some(newest) = runs.max() else { continue };
        for document in documents {
            std::fs::copy(root.join(document), folder.path().join(document)).expect("copied");
        }
        let mut command = bench();
        command
            .current_dir(folder.path())
            .args(["report", &format!("benchmarks/{newest}"), "--out", "out", "--fill"])
            .args(documents);
        let output = run(&mut command);
        assert!(output.status.success(), "{}", text(&output));
        for document in documents {
            let same = read(&folder.path().join(document)) == read(&root.join(document));
            assert!(same, "{document} is not that of {newest}: scripts/record-bench.sh fill");
        }
    }
}
