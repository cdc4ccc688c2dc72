//! The data vectors of M2N 8.1, as the book has them.

use crate::layout::{by_rank, numbers};

/// The chapter with the table.
const CHAPTER: &str = include_str!("../../../docs/src/spec/m2n/08-vectors.md");

/// What each vector moves, in the order of the table.
const NAMES: [&str; 38] = [
    "one_rank_to_one",
    "shards_to_equal_shards",
    "two_shards_to_four",
    "four_shards_to_two",
    "two_shards_to_three",
    "three_shards_to_two",
    "shards_to_replicas",
    "replicas_to_shards",
    "replicas_to_replicas",
    "rows_to_rows_2x2",
    "rows_to_columns_2x2",
    "columns_to_rows_2x2",
    "columns_to_columns_2x2",
    "columns_of_fp32_to_columns_2x2",
    "columns_of_fp16_to_one_rank",
    "rows_replicated_outside_to_columns_replicated_outside",
    "rows_replicated_inside_to_columns_replicated_inside",
    "rows_replicated_inside_to_columns_replicated_outside",
    "columns_replicated_outside_to_rows_replicated_inside",
    "two_replicas_of_three_shards_to_two_shards",
    "two_shards_to_three_replicas_of_them",
    "four_replicas_on_a_square_to_four_in_a_row",
    "four_replicas_to_three",
    "three_replicas_to_four",
    "shards_to_lower_ranks",
    "shards_past_ranks_outside_of_both_meshes",
    "first_to_last_of_three_dimensions",
    "first_to_second_of_three_dimensions",
    "last_to_first_of_three_dimensions",
    "second_to_last_of_three_dimensions",
    "second_to_second_of_three_dimensions",
    "second_of_three_dimensions_to_one_rank",
    "four_rows_to_two_columns_replicated_inside",
    "replicas_along_one_axis_to_replicas_along_the_other",
    "an_empty_tensor",
    "shards_of_fp16_to_equal_shards",
    "two_replicas_of_shards_to_four_replicas",
    "four_shards_to_two_replicated_inside",
];

/// A vector; layouts in the notation of the specification, without the type of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataVector {
    /// `D01` and so on.
    pub id: String,
    /// What it moves.
    pub name: &'static str,
    /// Ranks of the communicator.
    pub ranks: usize,
    /// Bytes of an element.
    pub element: usize,
    /// The shape of the global tensor.
    pub global: Vec<usize>,
    /// The source, as `{2}@0 [S0] 2x4`.
    pub source: String,
    /// The destination.
    pub destination: String,
    /// The elements of every destination tile, by rank, as row-major numbers of the global tensor.
    pub tiles: Vec<(usize, Vec<usize>)>,
    /// The ranks that each destination rank reads from.
    pub sources: Vec<(usize, Vec<usize>)>,
    /// The same under the uniform balance.
    pub uniform_sources: Vec<(usize, Vec<usize>)>,
}

impl DataVector {
    /// The source in the notation with the type of an element.
    pub fn source_layout(&self) -> String {
        format!("{} {}", self.source, self.data_type())
    }

    /// The same for the destination.
    pub fn destination_layout(&self) -> String {
        format!("{} {}", self.destination, self.data_type())
    }

    /// A type of that many bytes.
    fn data_type(&self) -> &'static str {
        match self.element {
            1 => "uint8",
            2 => "fp16",
            4 => "fp32",
            other => panic!("elements of {other} bytes"),
        }
    }
}

/// All vectors.
///
/// # Panics
/// If the table is not as it was.
pub fn data_vectors() -> Vec<DataVector> {
    let rows = CHAPTER.lines().filter_map(|line| line.strip_prefix("| <a id=\"m2n-d"));
    let vectors: Vec<_> = rows.zip(NAMES).map(|(row, name)| parse(row, name)).collect();
    let ids: Vec<_> = vectors.iter().map(|vector| vector.id.clone()).collect();
    assert_eq!(ids, (1..=NAMES.len()).map(|n| format!("D{n:02}")).collect::<Vec<_>>());
    vectors
}

fn parse(row: &str, name: &'static str) -> DataVector {
    let (_, row) = row.split_once("</a>").unwrap();
    let fields: Vec<_> = row.split('|').map(str::trim).collect();
    let [id, ranks, global, source, destination, tiles, sources, ..] = fields[..] else {
        panic!("{row}")
    };
    let (global, element) = match global.split_once(" (") {
        Some((global, element)) => (global, element.trim_end_matches("B)").parse().unwrap()),
        None => (global, 1),
    };
    let tiles = by_rank(tiles, ":")
        .into_iter()
        .map(|(rank, tile)| (rank, if tile == "(empty)" { vec![] } else { numbers(tile, ' ') }));
    let sources = by_rank(sources, "<-");
    let of_balance = |uniform: bool| {
        let ranks = sources.iter().map(|&(rank, list)| {
            let (usual, other) = list.split_once(" (U: ").unwrap_or((list, list));
            let list = if uniform { other.trim_end_matches(')') } else { usual };
            (rank, if list == "none" { vec![] } else { numbers(list, ',') })
        });
        sorted(ranks.collect())
    };
    DataVector {
        id: id.to_owned(),
        name,
        ranks: ranks.parse().unwrap(),
        element,
        global: numbers(global, 'x'),
        source: source.to_owned(),
        destination: destination.to_owned(),
        tiles: sorted(tiles.collect()),
        sources: of_balance(false),
        uniform_sources: of_balance(true),
    }
}

fn sorted(mut by_rank: Vec<(usize, Vec<usize>)>) -> Vec<(usize, Vec<usize>)> {
    by_rank.sort();
    by_rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_with_all_its_fields() {
        let vectors = data_vectors();
        let last = &vectors[36];
        assert_eq!((&last.id[..], last.ranks, last.element), ("D37", 8, 1));
        assert_eq!((&last.source[..], &last.destination[..]), ("{2,2}@0 [R,S0] 2", "{4}@4 [R] 4"));
        assert_eq!(last.tiles, (4..8).map(|rank| (rank, vec![0, 1, 2, 3])).collect::<Vec<_>>());
        let [a, b] = [vec![0, 1], vec![2, 3]];
        assert_eq!(last.sources, (4..8).map(|rank| (rank, a.clone())).collect::<Vec<_>>());
        let uniform = [(4, a.clone()), (5, a), (6, b.clone()), (7, b)];
        assert_eq!(last.uniform_sources, uniform);
        assert_eq!((vectors[14].element, &vectors[14].global[..]), (2, &[2, 4][..]));
        assert_eq!(
            (&vectors[34].tiles, &vectors[34].sources),
            (&vec![(1, vec![])], &vec![(1, vec![])])
        );
    }
}
