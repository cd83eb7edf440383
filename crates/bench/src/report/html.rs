//! Results for people: one page that needs nothing else, in light and dark, on wide and narrow
//! screens.

use std::fmt::Write as _;

use super::Report;
use super::plot::{Plot, STYLES, Scale, Series, escaped, marker};
use crate::host::Host;
use crate::result::{Metric, MetricForm, PointResult, Spread};
use crate::suite::{Beside, PUBLISHED_PREFACE};
use crate::workload::{Point, Size};

const STYLE: &str = include_str!("style.css");

/// As the console has it.
const LOGO: &str = include_str!("../../../../web/public/tarn.svg");

/// The page.
#[must_use]
pub fn render(report: &Report<'_>) -> String {
    let mut page =
        String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>");
    page.push_str(
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>Tarn bench</title><style>",
    );
    page.push_str(STYLE);
    page.push_str("</style></head>\n<body><header class=\"brand\">");
    // Inside a page it needs no name of its language.
    let name = " xmlns=\"http://www.w3.org/2000/svg\"";
    page.push_str(&LOGO.trim_end().replacen(name, "", 1));
    page.push_str("<h1>Tarn bench</h1></header>\n");
    head(&mut page, report);
    lead(&mut page, report);
    charts(&mut page, report);
    tables(&mut page, report);
    published(&mut page, report);
    page.push_str("</body></html>\n");
    page
}

/// Where and how it was measured.
fn head(page: &mut String, report: &Report<'_>) {
    let host = report.host;
    let rows = [
        ("Date", host.date.clone()),
        ("CPU", format!("{} x {}", host.cpus, host.cpu_model)),
        ("Kernel", host.kernel.clone()),
        ("TCP", host.congestion_control.clone()),
        ("Generator", generator(host)),
        ("Command", host.command_line.join(" ")),
    ];
    page.push_str("<dl>");
    for (name, value) in rows {
        let _infallible = write!(page, "<dt>{name}</dt><dd>{}</dd>", escaped(&value));
    }
    page.push_str("</dl>\n<ul class=\"legend\">");
    for (index, target) in report.targets.iter().enumerate() {
        let style = index % STYLES;
        let _infallible = write!(
            page,
            "<li><svg class=\"key\" viewBox=\"0 0 28 14\" aria-hidden=\"true\">\
             <path class=\"line s{style}\" d=\"M0 7H28\"/><path class=\"mark s{style}\" d=\"{}\"/>\
             </svg><b>{}</b> {}, {}{}</li>",
            marker(style, 14.0, 7.0),
            escaped(&target.label),
            escaped(&target.transport),
            escaped(&target.place),
            on_cpus(target.cpus.as_deref())
        );
    }
    page.push_str("</ul>\n");
    if let Some(failure) = report.failure {
        let _infallible = writeln!(
            page,
            "<p class=\"bad\">Ended early: {}</p>",
            escaped(failure)
        );
    }
}

fn generator(host: &Host) -> String {
    let cpus: Vec<String> = host.pinned_cpus.iter().map(usize::to_string).collect();
    let pinned = (!cpus.is_empty()).then(|| cpus.join(","));
    format!("tarn {}{}", host.tarn_version, on_cpus(pinned.as_deref()))
}

fn on_cpus(list: Option<&str>) -> String {
    list.map_or_else(String::new, |list| format!(", on CPU {}", escaped(list)))
}

/// Where a later target is better than the first, in words.
fn lead(page: &mut String, report: &Report<'_>) {
    if report.targets.len() < 2 {
        return;
    }
    let first = report.targets.first().map_or("", |target| &target.label);
    let mut lines = Vec::new();
    for result in report.results {
        for (index, target) in result.targets.iter().enumerate() {
            let better = Metric::FORMS
                .iter()
                .filter(|form| form.metric != Metric::GeneratorCpu)
                .filter(|form| result.beats_first(index, form.metric))
                .filter_map(|form| Some(advantage(form, result.ratio(index, form.metric)?)));
            let better: Vec<_> = better.collect();
            if !better.is_empty() {
                lines.push(format!(
                    "<li>{}: <b>{}</b> is ahead in {}</li>",
                    result.point,
                    escaped(&target.label),
                    better.join(", ")
                ));
            }
        }
    }
    let first = escaped(first);
    if lines.is_empty() {
        let _infallible = writeln!(
            page,
            "<p>Nobody is ahead of <b>{first}</b> in any figure.</p>"
        );
    } else {
        let _infallible = writeln!(
            page,
            "<h2>Where others are ahead of {first}</h2><ul>{}</ul>",
            lines.concat()
        );
    }
}

/// A metric and by how much it is better.
fn advantage(form: &MetricForm, ratio: Spread) -> String {
    let percent = (ratio.median - 1.0).abs() * 100.0;
    let word = if form.more_is_better { "more" } else { "less" };
    format!("{} ({percent:.0} % {word})", form.name)
}

/// What lies along the horizontal axis of a chart.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Along {
    Depth,
    BlockBytes,
}

impl Along {
    const fn of(self, point: &Point) -> u32 {
        match self {
            Self::Depth => point.depth,
            Self::BlockBytes => point.block_bytes,
        }
    }

    /// The point without what lies along the axis: points that are the same then make one chart.
    const fn erase(self, mut point: Point) -> Point {
        match self {
            Self::Depth => point.depth = 0,
            Self::BlockBytes => point.block_bytes = 0,
        }
        point
    }

    fn label(self, value: u32) -> String {
        match self {
            Self::Depth => value.to_string(),
            Self::BlockBytes => Size(value.into()).to_string(),
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Depth => "queue depth",
            Self::BlockBytes => "block size",
        }
    }

    /// What all points of a chart have in common, in words.
    fn common(self, point: &Point) -> String {
        let access = point.access.name();
        let other = match self {
            Self::Depth => Size(point.block_bytes.into()).to_string(),
            Self::BlockBytes => format!("depth {}", point.depth),
        };
        format!("{access}, {other}, {} session(s)", point.sessions)
    }
}

/// One kind of chart: title, axis, scale, and its curves with whether they are dashed.
struct Chart {
    title: &'static str,
    along: Along,
    scale: Scale,
    curves: &'static [(Metric, bool)],
}

const CHARTS: [Chart; 5] = [
    Chart {
        title: "IOPS",
        along: Along::Depth,
        scale: Scale::Log,
        curves: &[(Metric::Iops, false)],
    },
    Chart {
        title: "Latency in us: p50 solid, p99 dashed",
        along: Along::Depth,
        scale: Scale::Log,
        curves: &[(Metric::P50, false), (Metric::P99, true)],
    },
    Chart {
        title: "CPU of the target in us per I/O",
        along: Along::Depth,
        scale: Scale::Linear,
        curves: &[(Metric::TargetCpu, false)],
    },
    Chart {
        title: "Throughput in MB/s",
        along: Along::BlockBytes,
        scale: Scale::Log,
        curves: &[(Metric::Throughput, false)],
    },
    Chart {
        title: "CPU of the target in us per I/O",
        along: Along::BlockBytes,
        scale: Scale::Log,
        curves: &[(Metric::TargetCpu, false)],
    },
];

fn charts(page: &mut String, report: &Report<'_>) {
    let mut figures = String::new();
    for chart in &CHARTS {
        for group in groups(report.results, chart.along) {
            figure(&mut figures, chart, &group);
        }
    }
    if figures.is_empty() {
        page.push_str("<p>Curves need several depths (--iodepth) or block sizes (--bs).</p>\n");
    } else {
        let _infallible = writeln!(
            page,
            "<h2>Curves</h2><div class=\"figures\">{figures}</div>"
        );
    }
}

/// Points that differ only in what lies along the axis, ascending; alone ones are left out.
fn groups(results: &[PointResult], along: Along) -> Vec<Vec<&PointResult>> {
    let mut groups: Vec<Vec<&PointResult>> = Vec::new();
    for result in results {
        let key = along.erase(result.point);
        let is_same = |group: &&mut Vec<&PointResult>| {
            let first = group.first();
            first.is_some_and(|first| along.erase(first.point) == key)
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(result),
            None => groups.push(vec![result]),
        }
    }
    for group in &mut groups {
        group.sort_by_key(|result| along.of(&result.point));
        group.dedup_by_key(|result| along.of(&result.point));
    }
    groups.retain(|group| group.len() > 1);
    groups
}

fn figure(figures: &mut String, chart: &Chart, group: &[&PointResult]) {
    let Some(first) = group.first() else {
        return;
    };
    let along = chart.along;
    let mut series = Vec::new();
    for (index, target) in first.targets.iter().enumerate() {
        for &(metric, is_dashed) in chart.curves {
            let points = group.iter().filter_map(|result| {
                let x = f64::from(along.of(&result.point));
                Some((x, result.spread(index, metric)?.median))
            });
            series.push(Series {
                style: index,
                is_dashed,
                label: format!("{}, {}", target.label, metric.form().name),
                points: points.collect(),
            });
        }
    }
    let common = along.common(&first.point);
    let values = group.iter().map(|result| along.of(&result.point));
    let plot = Plot {
        description: format!("{} over {}: {common}", chart.title, along.title()),
        x_title: along.title().to_owned(),
        x_values: values.map(|x| (f64::from(x), along.label(x))).collect(),
        scale: chart.scale,
        series,
    };
    if let Some(svg) = plot.render() {
        let title = chart.title;
        let _infallible = writeln!(
            figures,
            "<figure><figcaption><b>{title}</b><br/>{common}</figcaption>{svg}</figure>"
        );
    }
}

fn tables(page: &mut String, report: &Report<'_>) {
    page.push_str(
        "<h2>Figures</h2><p>Each figure is the median of the rounds, with the least and the \
         greatest below it. Ratios compare with the first target, round by round.</p>\n",
    );
    for result in report.results {
        let _infallible = write!(
            page,
            "<h3>{}</h3><div class=\"wide\"><table><thead><tr><th>target</th>",
            result.point
        );
        for form in Metric::FORMS {
            let unit = if form.unit == form.name {
                ""
            } else {
                form.unit
            };
            let _infallible = write!(page, "<th>{}<br/><small>{unit}</small></th>", form.name);
        }
        page.push_str("</tr></thead><tbody>");
        for index in 0..result.targets.len() {
            rows(page, result, index);
        }
        page.push_str("</tbody></table></div>\n");
        troubles(page, result);
    }
}

/// The rows of one target: its figures, and their ratios to the first one's.
fn rows(page: &mut String, result: &PointResult, index: usize) {
    let Some(target) = result.targets.get(index) else {
        return;
    };
    let _infallible = write!(page, "<tr><th>{}</th>", escaped(&target.label));
    for form in Metric::FORMS {
        let is_ahead = result.beats_first(index, form.metric);
        let spread = result.spread(index, form.metric);
        cell(page, spread, form.digits, "", is_ahead);
    }
    page.push_str("</tr>");
    if index == 0 {
        return;
    }
    page.push_str("<tr class=\"ratio\"><th>ratio</th>");
    for form in Metric::FORMS {
        let is_ahead = result.beats_first(index, form.metric);
        cell(page, result.ratio(index, form.metric), 2, "x", is_ahead);
    }
    page.push_str("</tr>");
}

/// A figure with its spread. A star besides the colour marks one that is ahead of the first.
fn cell(page: &mut String, spread: Option<Spread>, digits: usize, unit: &str, is_ahead: bool) {
    let Some(Spread { median, min, max }) = spread else {
        page.push_str("<td>-</td>");
        return;
    };
    let (class, star) = if is_ahead {
        (" class=\"ahead\" title=\"ahead of the first target\"", "* ")
    } else {
        ("", "")
    };
    let _infallible = write!(
        page,
        "<td{class}>{star}{median:.digits$}{unit}<br/><small>{min:.digits$}..{max:.digits$}</small></td>"
    );
}

/// What others published, beside what was measured.
fn published(page: &mut String, report: &Report<'_>) {
    if report.published.is_empty() {
        return;
    }
    let _infallible = write!(
        page,
        "<h2>Published figures, and what was measured here</h2><p>{}</p>\n\
         <div class=\"wide\"><table class=\"published\"><thead><tr><th>Source</th><th>Target</th>\
         <th>Point</th><th>Published</th>",
        escaped(PUBLISHED_PREFACE)
    );
    for target in report.targets {
        let _infallible = write!(page, "<th>{}, here</th>", escaped(&target.label));
    }
    page.push_str("</tr></thead><tbody>");
    for Beside { row, result } in report.published {
        let form = row.metric.form();
        let _infallible = write!(
            page,
            "<tr><th>{} ({})</th><td>{}; {}</td><td>{}</td><td>{:.0} {}</td>",
            escaped(row.source),
            row.year,
            escaped(row.target),
            escaped(row.hardware),
            escaped(&row.point.to_string()),
            row.figure,
            form.name
        );
        for index in 0..report.targets.len() {
            cell(
                page,
                result.spread(index, row.metric),
                form.digits,
                "",
                false,
            );
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div>\n");
}

fn troubles(page: &mut String, result: &PointResult) {
    for target in &result.targets {
        for (round, sample) in target.samples.iter().enumerate() {
            let tally = &sample.tally;
            if sample.is_good() {
                continue;
            }
            let words = sample.failure.iter();
            let words = words.chain(&tally.first_errors);
            let words: Vec<_> = words
                .chain(&tally.first_miscompares)
                .map(|text| escaped(text))
                .collect();
            let _infallible = writeln!(
                page,
                "<p class=\"bad\">{}, round {}: {} I/O errors, {} miscompares: {}</p>",
                escaped(&target.label),
                round + 1,
                tally.errors,
                tally.miscompares,
                words.join("; ")
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::report::TargetNote;
    use crate::result::testing::result;
    use crate::suite::{PUBLISHED, beside};

    fn page(results: &[PointResult]) -> String {
        let host = Host {
            command_line: vec!["tarn".to_owned(), "<bench>".to_owned()],
            ..Host::default()
        };
        let targets = ["a", "b<i>&\"'"].map(|label| TargetNote {
            label: label.to_owned(),
            transport: "iscsi".to_owned(),
            place: "h:1".to_owned(),
            pid: None,
            cpus: None,
        });
        render(&Report {
            host: &host,
            targets: &targets,
            results,
            failure: Some("<lost>"),
            is_verified: false,
            published: &beside(results),
        })
    }

    /// Checks that every element is closed in order and every `&` begins an entity.
    fn assert_well_formed(page: &str) {
        let mut open = Vec::new();
        let body = page.strip_prefix("<!DOCTYPE html>").unwrap();
        for (n, part) in body.split('<').enumerate() {
            if n == 0 {
                continue;
            }
            let (tag, text) = part.split_once('>').unwrap();
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "in {page}");
            } else if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap());
            }
            if open.last() == Some(&"style") {
                continue;
            }
            for entity in text.split('&').skip(1) {
                assert!(entity.split_once(';').unwrap().0.len() <= 4, "{entity}");
            }
            assert!(
                !text.contains('>') && tag.matches('"').count() % 2 == 0,
                "{part}"
            );
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    #[test]
    fn the_page_is_well_formed_whatever_labels_hold() {
        let targets: [(&str, &[f64]); 2] = [("a", &[100.0, 90.0]), ("b<i>&\"'", &[50.0, 60.0])];
        let mut results = [result(1, &targets), result(4, &targets)];
        results[0].targets[1].samples[0].failure = Some("<&>".to_owned());
        let page = page(&results);
        assert_well_formed(&page);
        assert!(!page.contains("<i>") && !page.contains("<lost>") && !page.contains("<bench>"));
        assert!(page.contains("Ended early: &lt;lost&gt;"));
        // IOPS, latency and CPU over the depth.
        assert_eq!(page.matches("<figure>").count(), 3);
        assert_eq!(page.matches("<script").count(), 0);
        assert_eq!(page.matches("http").count(), 0);
    }

    #[test]
    fn who_is_ahead_is_told_in_words_and_marked() {
        let behind = page(&[result(1, &[("a", &[100.0]), ("b<i>&\"'", &[50.0])])]);
        assert!(behind.contains("Nobody is ahead of <b>a</b>"));
        assert!(!behind.contains("class=\"ahead\""));
        let ahead = page(&[result(1, &[("a", &[100.0]), ("b<i>&\"'", &[125.0])])]);
        assert!(ahead.contains("is ahead in IOPS (25 % more), MB/s (25 % more)"));
        assert_eq!(ahead.matches("class=\"ahead\"").count(), 4);
    }

    #[test]
    fn published_figures_have_ours_beside_them() {
        let mut results = [result(8, &[("a", &[100.0]), ("b<i>&\"'", &[50.0])])];
        assert!(!page(&results).contains("class=\"published\""));
        results[0].point = PUBLISHED[0].point;
        let page = page(&results);
        assert_well_formed(&page);
        assert!(page.contains("history"), "the preface is there");
        assert!(page.contains("<td>77 MB/s</td>"), "{page}");
    }

    #[test]
    fn a_page_of_nothing_is_still_a_page() {
        let page = page(&[]);
        assert_well_formed(&page);
        assert!(page.contains("Curves need several depths"));
    }
}
