//! One direction of a connection.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::storm::Random;
use super::{Way, Weather};

/// Bytes that are carried together, and how many such pieces are on their way at most.
const PIECE: usize = 16 << 10;
const PIECES: usize = 64;

/// Carries bytes until the sender ends or either side is gone.
pub(super) async fn carry(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    way: Way,
    seed: u64,
    weather: watch::Receiver<Weather>,
) {
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::join!(read(from, sender), write(to, receiver, way, seed, weather));
}

async fn read(mut from: ReadHalf<'_>, pieces: mpsc::Sender<(Instant, Vec<u8>)>) {
    loop {
        let mut piece = vec![0; PIECE];
        let count = tokio::select! {
            count = from.read(&mut piece) => count.unwrap_or_default(),
            () = pieces.closed() => return,
        };
        piece.truncate(count);
        if count == 0 || pieces.send((Instant::now(), piece)).await.is_err() {
            return;
        }
    }
}

async fn write(
    mut to: WriteHalf<'_>,
    mut pieces: mpsc::Receiver<(Instant, Vec<u8>)>,
    way: Way,
    seed: u64,
    mut weather: watch::Receiver<Weather>,
) {
    let ended = weather.borrow().way(way).ended;
    let mut over = weather.clone();
    let mut damage = Damage { random: Random::new(seed), spared: None };
    let carried = async {
        while let Some((came, mut piece)) = pieces.recv().await {
            let latency = weather.borrow().way(way).latency;
            tokio::time::sleep_until(came + latency).await;
            let Ok(rules) = weather.wait_for(|weather| !weather.holds(way)).await.map(|weather| *weather.way(way))
            else {
                return;
            };
            damage.strike(&mut piece, rules.corrupt);
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        // The end comes after the bytes, so it is held as they are.
        let _ = weather.wait_for(|weather| !weather.holds(way)).await;
    };
    tokio::select! {
        () = carried => {}
        _ = over.wait_for(|weather| weather.way(way).ended != ended) => {}
    }
    let _ = to.shutdown().await;
}

/// Which bytes are wrong.
struct Damage {
    random: Random,
    /// Bytes that are well until the next that is not.
    spared: Option<usize>,
}

impl Damage {
    fn strike(&mut self, piece: &mut [u8], one_in: u32) {
        if one_in == 0 {
            return;
        }
        let mut distance = || self.random.below(2 * u64::from(one_in)) as usize;
        let mut at = self.spared.unwrap_or_else(&mut distance);
        while let Some(byte) = piece.get_mut(at) {
            *byte ^= 1 << (distance() % 8);
            at += 1 + distance();
        }
        self.spared = Some(at - piece.len());
    }
}
