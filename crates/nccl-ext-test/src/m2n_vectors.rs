//! The data vectors of M2N 8.1, as the book has them.

use crate::layout::{by_rank, numbers};

/// The chapter with the table.
const CHAPTER: &str = include_str!("../../../docs/src/spec/m2n/08-vectors.md");

/// What each vector moves, in the order of the table.
const NAMES: [&str; 38] = [
    "one_rank_to_another",
    "shards_2_to_2",
    "shards_2_to_4",
    "shards_4_to_2",
    "shards_2_to_3",
    "shards_3_to_2",
    "shards_to_replicas",
    "replicas_to_shards",
    "replicas_to_replicas",
    "rows_to_rows",
    "rows_to_columns",
    "columns_to_rows",
    "columns_to_columns",
    "columns_of_4_byte_elements",
    "columns_of_2_byte_elements_to_one_rank",
    "rows_to_columns_2x2_replicas_outside",
    "rows_to_columns_2x2_replicas_inside",
    "rows_to_columns_2x2_replicas_inside_to_outside",
    "columns_to_rows_2x2_replicas_outside_to_inside",
    "shards_2x3_to_1x2",
    "shards_1x2_to_3x2",
    "replicas_2x2_to_4",
    "replicas_4_to_3",
    "replicas_3_to_4",
    "destination_ranks_before_source_ranks",
    "ranks_outside_both_meshes",
    "first_axis_to_last_of_3",
    "first_axis_to_middle_of_3",
    "last_axis_to_first_of_3",
    "middle_axis_to_last_of_3",
    "middle_axis_to_middle_of_3",
    "middle_axis_of_3_to_one_rank",
    "rows_4x1_to_columns_2x2",
    "one_shard_among_replicas",
    "nothing",
    "shards_of_2_byte_elements",
    "replicated_shards_to_replicas",
    "shards_4_to_2_replicated",
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
