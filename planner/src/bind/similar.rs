//! Which columns a name may mean that is none: those whose names are nearly the same, by the rules of Postgres.

use datafusion::common::utils::datafusion_strsim::levenshtein;

/// Characters by which a name may differ, relation and column together.
const MAX_DISTANCE: usize = 3;

/// Names with more characters are not compared.
const MAX_CHARACTERS: usize = 63;

/// The columns nearest to a name.
pub(super) struct Similar<'n> {
    relation: Option<&'n str>,
    name: &'n str,
    distance: usize,
    /// Relation and column, at `distance`.
    nearest: Vec<(String, String)>,
}

impl<'n> Similar<'n> {
    /// Those nearest to `name`, or to `relation.name`.
    pub(super) fn to(relation: Option<&'n str>, name: &'n str) -> Self {
        Self { relation, name, distance: MAX_DISTANCE, nearest: Vec::new() }
    }

    /// Looks at a column that there is.
    pub(super) fn consider(&mut self, relation: &str, column: &str) {
        let Some(distance) = self.distance_to(relation, column) else { return };
        if distance < self.distance {
            self.distance = distance;
            self.nearest.clear();
        }
        if distance == self.distance {
            self.nearest.push((relation.to_owned(), column.to_owned()));
        }
    }

    fn distance_to(&self, relation: &str, column: &str) -> Option<usize> {
        let apart = match self.relation {
            Some(wanted) if wanted != relation => distance(wanted, relation)?,
            _ => 0,
        };
        let characters = distance(self.name, column)?;
        // When more than half of it is different, it is another name.
        (characters <= self.name.chars().count() / 2).then_some(apart + characters).filter(|sum| *sum <= self.distance)
    }

    /// One or two columns; of more it is not known which is meant.
    pub(super) fn hint(&self) -> Option<String> {
        let shown: Vec<String> = self.nearest.iter().take(3).map(|(relation, column)| quoted(relation, column)).collect();
        match shown.as_slice() {
            [column] => Some(format!("Perhaps you meant to reference the column {column}.")),
            [column, other] => Some(format!("Perhaps you meant to reference the column {column} or the column {other}.")),
            _ => None,
        }
    }
}

fn quoted(relation: &str, column: &str) -> String {
    match relation {
        "" => format!("\"{column}\""),
        relation => format!("\"{relation}.{column}\""),
    }
}

/// The characters that have to be put in, taken out or changed; none if they are too many.
fn distance(one: &str, other: &str) -> Option<usize> {
    let (characters, others) = (one.chars().count(), other.chars().count());
    let comparable = characters.max(others) <= MAX_CHARACTERS && characters.abs_diff(others) <= MAX_DISTANCE;
    comparable.then(|| levenshtein(one, other)).filter(|distance| *distance <= MAX_DISTANCE)
}
