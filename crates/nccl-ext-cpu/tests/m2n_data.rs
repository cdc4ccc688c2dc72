//! M2N 8.1: which bytes arrive where, and from which rank.

#![allow(clippy::unwrap_used, clippy::panic)]

mod m2n_common;

use m2n_common::*;

/// `ranks:` list of values, separated by `; `, as the specification writes it.
fn lists(text: &str) -> Vec<(usize, Vec<usize>)> {
    let numbers = |text: &str, by: char| -> Vec<usize> {
        text.split(by).filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect()
    };
    let part = |part: &str| {
        let (ranks, values) = part.split_once(':').unwrap();
        let values = numbers(values, ' ');
        let ranks = numbers(ranks, ',');
        ranks.into_iter().map(move |rank| (rank, values.clone())).collect::<Vec<_>>()
    };
    text.split("; ").flat_map(part).collect()
}

/// A vector: ranks, bytes of an element, both sides, destination tiles, ranks they come from.
struct Vector(usize, usize, &'static str, &'static str, &'static str, &'static str);

impl Vector {
    #[track_caller]
    fn run(&self) {
        let &Self(count, element, src, dst, tiles, sources) = self;
        let case = Case::new(count, element, src, dst);
        let values = |index: usize, byte: usize| if byte == 0 { index as u8 } else { 0 };
        let found = ranks(count, |comm| {
            case.run(comm);
            // The table's own values, and which rank each came from.
            let rank = comm.rank();
            let mut linear = case.buffers(rank, values);
            ok(case.call(comm.as_raw(), &mut linear));
            let mut origin = case.buffers(rank, |_, _| rank as u8);
            ok(case.call(comm.as_raw(), &mut origin));
            [linear, origin].map(|buffers| {
                buffers.dst.map(|tile| {
                    tile.data().iter().step_by(element).map(|&b| b as usize).collect::<Vec<_>>()
                })
            })
        });
        let mut expected = lists(tiles);
        expected.sort();
        let tile = |rank: usize| found[rank][0].clone().map(|tile| (rank, tile));
        assert_eq!((0..count).filter_map(tile).collect::<Vec<_>>(), expected);
        let mut expected = lists(sources);
        expected.sort();
        let from = |rank: usize| {
            let mut from = found[rank][1].clone()?;
            from.sort();
            from.dedup();
            Some((rank, from))
        };
        assert_eq!((0..count).filter_map(from).collect::<Vec<_>>(), expected);
    }
}

macro_rules! vectors {
    ($($name:ident: $count:literal, $element:literal, $src:literal => $dst:literal,
        $tiles:literal, $sources:literal;)+) => {$(
        #[test]
        fn $name() {
            Vector($count, $element, $src, $dst, $tiles, $sources).run();
        }
    )+};
}

vectors! {
    d01: 2, 1, "{1}@0 [R] 8" => "{1}@1 [R] 8", "1: 0 1 2 3 4 5 6 7", "1: 0";
    d02: 4, 1, "{2}@0 [S0] 4" => "{2}@2 [S0] 4", "2: 0 1 2 3; 3: 4 5 6 7", "2: 0; 3: 1";
    d03: 6, 1, "{2}@0 [S0] 4" => "{4}@2 [S0] 2",
        "2: 0 1; 3: 2 3; 4: 4 5; 5: 6 7", "2,3: 0; 4,5: 1";
    d04: 6, 1, "{4}@0 [S0] 2" => "{2}@4 [S0] 4", "4: 0 1 2 3; 5: 4 5 6 7", "4: 0 1; 5: 2 3";
    d05: 5, 1, "{2}@0 [S0] 3" => "{3}@2 [S0] 2", "2: 0 1; 3: 2 3; 4: 4 5", "2: 0; 3: 0 1; 4: 1";
    d06: 5, 1, "{3}@0 [S0] 2" => "{2}@3 [S0] 3", "3: 0 1 2; 4: 3 4 5", "3: 0 1; 4: 1 2";
    d07: 4, 1, "{2}@0 [S0] 2" => "{2}@2 [R] 4", "2,3: 0 1 2 3", "2,3: 0 1";
    d08: 4, 1, "{2}@0 [R] 4" => "{2}@2 [S0] 2", "2: 0 1; 3: 2 3", "2,3: 0";
    d09: 4, 1, "{2}@0 [R] 4" => "{2}@2 [R] 4", "2,3: 0 1 2 3", "2: 0; 3: 1";
    d10: 4, 1, "{2}@0 [S0] 2x4" => "{2}@2 [S0] 2x4",
        "2: 0 1 2 3 4 5 6 7; 3: 8 9 10 11 12 13 14 15", "2: 0; 3: 1";
    d11: 4, 1, "{2}@0 [S0] 2x4" => "{2}@2 [S1] 4x2",
        "2: 0 1 4 5 8 9 12 13; 3: 2 3 6 7 10 11 14 15", "2,3: 0 1";
    d12: 4, 1, "{2}@0 [S1] 4x2" => "{2}@2 [S0] 2x4",
        "2: 0 1 2 3 4 5 6 7; 3: 8 9 10 11 12 13 14 15", "2,3: 0 1";
    d13: 4, 1, "{2}@0 [S1] 4x2" => "{2}@2 [S1] 4x2",
        "2: 0 1 4 5 8 9 12 13; 3: 2 3 6 7 10 11 14 15", "2: 0; 3: 1";
    d14: 4, 4, "{2}@0 [S1] 2x2" => "{2}@2 [S1] 2x2", "2: 0 1 4 5; 3: 2 3 6 7", "2: 0; 3: 1";
    d15: 3, 2, "{2}@0 [S1] 2x2" => "{1}@2 [R] 2x4", "2: 0 1 2 3 4 5 6 7", "2: 0 1";
    d16: 8, 1, "{2,2}@0 [R,S0] 2x4" => "{2,2}@4 [R,S1] 4x2",
        "4,6: 0 1 4 5 8 9 12 13; 5,7: 2 3 6 7 10 11 14 15", "4,5,6,7: 0 1";
    d17: 8, 1, "{2,2}@0 [S0,R] 2x4" => "{2,2}@4 [S1,R] 4x2",
        "4,5: 0 1 4 5 8 9 12 13; 6,7: 2 3 6 7 10 11 14 15", "4,5,6,7: 0 2";
    d18: 8, 1, "{2,2}@0 [S0,R] 2x4" => "{2,2}@4 [R,S1] 4x2",
        "4,6: 0 1 4 5 8 9 12 13; 5,7: 2 3 6 7 10 11 14 15", "4,5,6,7: 0 2";
    d19: 8, 1, "{2,2}@0 [R,S1] 4x2" => "{2,2}@4 [S0,R] 2x4",
        "4,5: 0 1 2 3 4 5 6 7; 6,7: 8 9 10 11 12 13 14 15", "4,5,6,7: 0 1";
    d20: 8, 1, "{2,3}@0 [R,S0] 2" => "{1,2}@6 [R,S0] 3", "6: 0 1 2; 7: 3 4 5", "6: 0 1; 7: 1 2";
    d21: 8, 1, "{1,2}@0 [R,S0] 2" => "{3,2}@2 [R,S0] 2",
        "2,4,6: 0 1; 3,5,7: 2 3", "2,4,6: 0; 3,5,7: 1";
    d22: 8, 1, "{2,2}@0 [R,R] 3" => "{4}@4 [R] 3", "4,5,6,7: 0 1 2", "4: 0; 5: 1; 6: 2; 7: 3";
    d23: 7, 1, "{4}@0 [R] 2" => "{3}@4 [R] 2", "4,5,6: 0 1", "4: 0; 5: 2; 6: 3";
    d24: 7, 1, "{3}@0 [R] 2" => "{4}@3 [R] 2", "3,4,5,6: 0 1", "3,4: 0; 5: 1; 6: 2";
    d25: 4, 1, "{2}@2 [S0] 4" => "{2}@0 [S0] 4", "0: 0 1 2 3; 1: 4 5 6 7", "0: 2; 1: 3";
    d26: 6, 1, "{2}@1 [S0] 2" => "{2}@4 [S0] 2", "4: 0 1; 5: 2 3", "4: 1; 5: 2";
    d27: 4, 1, "{2}@0 [S0] 1x2x4" => "{2}@2 [S2] 2x2x2",
        "2: 0 1 4 5 8 9 12 13; 3: 2 3 6 7 10 11 14 15", "2,3: 0 1";
    d28: 4, 1, "{2}@0 [S0] 1x4x2" => "{2}@2 [S1] 2x2x2",
        "2: 0 1 2 3 8 9 10 11; 3: 4 5 6 7 12 13 14 15", "2,3: 0 1";
    d29: 4, 1, "{2}@0 [S2] 2x2x2" => "{2}@2 [S0] 1x2x4",
        "2: 0 1 2 3 4 5 6 7; 3: 8 9 10 11 12 13 14 15", "2,3: 0 1";
    d30: 4, 1, "{2}@0 [S1] 2x1x2" => "{2}@2 [S2] 2x2x1", "2: 0 2 4 6; 3: 1 3 5 7", "2,3: 0 1";
    d31: 4, 1, "{2}@0 [S1] 2x2x2" => "{2}@2 [S1] 2x2x2",
        "2: 0 1 2 3 8 9 10 11; 3: 4 5 6 7 12 13 14 15", "2: 0; 3: 1";
    d32: 3, 1, "{2}@0 [S1] 2x2x2" => "{1}@2 [S0] 2x4x2",
        "2: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", "2: 0 1";
    d33: 8, 1, "{4,1}@0 [S0,R] 1x4" => "{2,2}@4 [S1,R] 4x2",
        "4,5: 0 1 4 5 8 9 12 13; 6,7: 2 3 6 7 10 11 14 15", "4,5,6,7: 0 1 2 3";
    d34: 4, 1, "{1,2}@0 [S0,R] 4" => "{2,1}@2 [R,S0] 4", "2,3: 0 1 2 3", "2: 0; 3: 1";
    d35: 2, 1, "{1}@0 [S0] 0" => "{1}@1 [S0] 0", "1: ", "1: ";
    d36: 4, 2, "{2}@0 [S0] 2" => "{2}@2 [S0] 2", "2: 0 1; 3: 2 3", "2: 0; 3: 1";
    d37: 8, 1, "{2,2}@0 [R,S0] 2" => "{4}@4 [R] 4", "4,5,6,7: 0 1 2 3", "4,5,6,7: 0 1";
    d38: 8, 1, "{4}@0 [S0] 2" => "{2,2}@4 [S0,R] 4",
        "4,5: 0 1 2 3; 6,7: 4 5 6 7", "4,5: 0 1; 6,7: 2 3";
}
