//! Drawings with fewer elements: shapes of one style that follow one another become one path.
//!
//! A cloud of some hundred markers is then a third of its size. Nothing looks different: they are
//! painted in one order, and shapes of one kind turn one way, so that none cuts into another.

/// The same drawing with neighbouring `<polyline>`s and `<polygon>`s of one style as one `<path>`.
/// Each stands on a line of its own, with its points as the last attribute. O(bytes).
pub(crate) fn merge(svg: &str) -> String {
    let shapes: Vec<(&str, Option<Shape<'_>>)> =
        svg.split_inclusive('\n').map(|line| (line, Shape::of(line))).collect();
    let mut merged = String::with_capacity(svg.len());
    for group in shapes.chunk_by(|(_, one), (_, two)| {
        one.as_ref().zip(two.as_ref()).is_some_and(|(one, two)| one.is_like(two))
    }) {
        match group {
            [(_, Some(first)), _, ..] => {
                let all = group.iter().filter_map(|(_, shape)| shape.as_ref());
                let path: String = all.map(Shape::path).collect();
                merged += &format!("<path{} d=\"{path}\"/>\n", first.style);
            }
            _ => merged.extend(group.iter().map(|(line, _)| *line)),
        }
    }
    merged
}

/// A polyline or polygon.
struct Shape<'s> {
    closes: bool,
    /// Its attributes but for its points, with a space before each.
    style: &'s str,
    points: Vec<(i32, i32)>,
}

impl<'s> Shape<'s> {
    fn of(line: &'s str) -> Option<Self> {
        let line = line.trim_end().strip_suffix("\"/>")?;
        let (closes, line) = match line.strip_prefix("<polyline") {
            Some(rest) => (false, rest),
            None => (true, line.strip_prefix("<polygon")?),
        };
        let (style, points) = line.split_once(" points=\"")?;
        let point = |pair: &str| {
            let (x, y) = pair.split_once(',')?;
            Some((x.parse().ok()?, y.parse().ok()?))
        };
        let points = points.split_whitespace().map(point).collect::<Option<Vec<_>>>()?;
        (!points.is_empty()).then_some(Self { closes, style, points })
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.closes, self.style) == (other.closes, other.style)
    }

    /// From its first point on relative, which is shorter.
    fn path(&self) -> String {
        let (x, y) = self.points[0];
        let mut path = format!("M{x},{y}");
        for pair in self.points.windows(2) {
            let (dx, dy) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
            path += &format!("l{dx},{dy}");
        }
        if self.closes { path + "z" } else { path }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn neighbours_of_one_style_become_one_path() {
        let svg = "<rect x=\"1\"/>\n\
                   <polyline fill=\"none\" points=\"1,2 3,5 1,1\"/>\n\
                   <polyline fill=\"none\" points=\"7,-8 7,9\"/>\n\
                   <polyline fill=\"red\" points=\"1,2 3,4\"/>\n\
                   <polygon fill=\"red\" points=\"1,2 3,4 5,5\"/>\n\
                   <polygon fill=\"red\" points=\"0,0 1,0 1,1\"/>\n</svg>";
        let expected = "<rect x=\"1\"/>\n\
                        <path fill=\"none\" d=\"M1,2l2,3l-2,-4M7,-8l0,17\"/>\n\
                        <polyline fill=\"red\" points=\"1,2 3,4\"/>\n\
                        <path fill=\"red\" d=\"M1,2l2,2l2,1zM0,0l1,0l0,1z\"/>\n</svg>";
        assert_eq!(merge(svg), expected);
    }

    #[test]
    fn what_is_no_shape_stays() {
        for svg in ["", "<svg>", "<polyline points=\"\"/>\n<polyline points=\"1 2\"/>", "<polygon"]
        {
            assert_eq!(merge(svg), svg);
        }
    }
}
