//! Frames of a real exchange, for a corpus to begin with: a greeting, a batch with the questions and answers that made it,
//! and one frame of every other kind.

use graphmill_codec::query as codec;
use graphmill_graph::{Dataset, Direction};
use graphmill_sample::{Answer, AnswerScratch, BatchId, Config, Layout, Machine, Plan, Seeds, Step, Task, View, law};
use graphmill_testing::{Assignment, sample, tempdir, write};
use graphmill_wire::proto::{self, original_id::Id};
use graphmill_wire::{Header, Message, read};

/// The bytes of a frame.
fn frame(header: Header, message: &Message, body: &[u8]) -> Vec<u8> {
    let head = message.encode();
    let header = Header { kind: message.kind(), head: head.len() as u32, body: body.len() as u64, ..header };
    [&header.encode()[..], &head, body].concat()
}

/// The frames, one by one.
pub fn frames() -> Vec<Vec<u8>> {
    let header = Header { request: 7, channel: 1 << 32, epoch: 2, g: 3, ..Header::new(graphmill_wire::Kind::Ping) };
    let plain = [
        Message::Hello(proto::Hello {
            oldest_wire: 1,
            newest_wire: 1,
            law: law::VERSION,
            fingerprint: "0123456789abcdef0123456789abcdef".to_owned(),
            token: "open-sesame".to_owned(),
            client: vec![7; 16],
            role: proto::Role::Peer.into(),
            slots: true,
        }),
        Message::Welcome(proto::Welcome {
            wire: 1,
            partitions: vec![0, 2],
            parts: 4,
            unix_socket: "memory.sock".to_owned(),
            lease_ms: 30_000,
            ..proto::Welcome::default()
        }),
        Message::Refused(proto::Refused { code: proto::Code::Denied.into(), reason: "no".to_owned() }),
        Message::Credit(proto::Credit { g: vec![0, 1, 300, u64::MAX] }),
        Message::Failed(proto::Failed { code: proto::Code::Unavailable.into(), reason: "not now".to_owned() }),
        Message::Lost(proto::Lost { reason: "open it again".to_owned() }),
        Message::Slot(proto::Slot { slot: 3, bytes: 2 << 20 }),
        Message::Return(proto::Return { returned: vec![0, 1], retired: vec![2] }),
        Message::Ping(proto::Ping {}),
        Message::Pong(proto::Pong {}),
    ];
    let mut frames: Vec<Vec<u8>> = plain.iter().map(|message| frame(header, message, &[])).collect();
    frames.extend(readings().into_iter().map(|(message, body)| frame(header, &message, &body)));
    frames.extend(objects());
    frames.extend(sampling().into_iter().map(|(message, body)| frame(header, &message, &body)));
    frames
}

/// What a client and an object server say to each other.
pub fn objects() -> Vec<Vec<u8>> {
    let header = Header { request: 1, channel: 5, epoch: 6, ..Header::new(graphmill_wire::Kind::Put) };
    let plain = [
        Message::Get(proto::Get { wait_ms: 1 }),
        Message::Has(proto::Has {}),
        Message::Reserve(proto::Reserve { bytes: 70_000, wait_ms: 0 }),
        Message::Put(proto::Put { memory: true, bytes: 70_000, ..Default::default() }),
        Message::Put(proto::Put { tray: Some(3), bytes: 70_000, dropped_trays: 5, ..Default::default() }),
        Message::List(proto::List { limit: 10 }),
        Message::Evict(proto::Evict {}),
        Message::Stop(proto::Stop {}),
        Message::Object(proto::Object { found: true, slot: Some(3), bytes: 70_000 }),
        Message::Done(proto::Done { yes: true }),
        Message::Listing(proto::Listing {
            entries: vec![proto::ObjectEntry { high: 5, low: 6, bytes: 7, expires_ms: Some(8), ..Default::default() }],
            stats: Some(proto::ObjectStats { version: "1".to_owned(), objects: 1, ..Default::default() }),
        }),
    ];
    let put = Message::Put(proto::Put { ttl_ms: 3, wait_ms: 1, ..Default::default() });
    let put = frame(header, &put, b"an object");
    std::iter::once(put).chain(plain.iter().map(|message| frame(header, message, &[]))).collect()
}

/// Questions of the dataset service, and answers.
fn readings() -> Vec<(Message, Vec<u8>)> {
    fn question<R: read::Request>(request: &R) -> (Message, Vec<u8>) {
        (Message::Read(R::head(vec![0, 1])), read::body(request))
    }
    let node_type = Some("paper".to_owned());
    let originals =
        vec![proto::OriginalId { id: Some(Id::Number(-7)) }, proto::OriginalId { id: Some(Id::Text("é".to_owned())) }];
    let split = Some("train".to_owned());
    let reading = |body| (Message::Reading(proto::Reading {}), body);
    vec![
        question(&proto::NodeIdsRequest { node_type: node_type.clone(), split, ..Default::default() }),
        question(&proto::OriginalIdsRequest { node_type: node_type.clone(), ids: vec![0, 4] }),
        question(&proto::LookupRequest { node_type, originals: originals.clone() }),
        reading(read::body(&proto::NodeIdsResponse { ids: vec![0, 3, 4] })),
        reading(read::body(&proto::OriginalIdsResponse { originals })),
        reading(read::body(&proto::LookupResponse { ids: vec![-1, 4] })),
    ]
}

/// A batch of the sample graph, with every question and answer on its way.
fn sampling() -> Vec<(Message, Vec<u8>)> {
    let folder = tempdir();
    let path = folder.path().join("dataset");
    let graph = sample();
    let assignment = Assignment::assigned(&graph, 2, |_, id| (id % 2) as u16);
    write(&graph, &path, &[Direction::Out, Direction::In], &assignment).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let config = Config {
        task: Task::Nodes { node_type: Some("paper".to_owned()) },
        features: vec!["x".to_owned()],
        labels: true,
        ..Config::neighbors(&[3, 2])
    };
    let plan = Plan::new(config, &dataset).unwrap();
    let view = View::new(&dataset);
    let mut machine = Machine::new(&plan);
    let mut scratch = AnswerScratch::default();
    let mut frames = Vec::new();
    machine.begin(&plan, Seeds::Nodes(&[0, 3, 4]), BatchId { epoch: 2, g: 3, repeated: false }).unwrap();
    while machine.step(&plan).unwrap() == Step::Need {
        for (need, answer) in machine.needs() {
            let ids: Vec<u64> = need.ids.iter().chain(need.others).copied().collect();
            frames.push((Message::Ask(codec::ask(&need)), bytemuck::cast_slice(&ids).to_vec()));
            view.answer(&need, answer, &mut scratch).unwrap();
            frames.push(answered(answer));
        }
    }
    let layout = Layout::of(&plan, &machine);
    let mut buffer = vec![0; layout.bytes()];
    layout.write(&plan, &machine, &mut buffer).unwrap();
    for (rows, place) in layout.gathers(&plan, &machine) {
        view.gather(rows, &mut buffer[place.clone()]).unwrap();
        let ids_body = bytemuck::cast_slice(rows.ids).to_vec();
        frames.push((Message::Gather(codec::gather(rows)), ids_body));
        let row_bytes = view.row_bytes(rows.source, rows.half).unwrap() as u64;
        let head = proto::Rows { row_bytes, bytes: place.len() as u64, slot: None };
        frames.push((Message::Rows(head), buffer[place].to_vec()));
    }
    let head = proto::BatchHead {
        size: machine.batch_size(&plan) as u64,
        tensors: graphmill_codec::batch::tensors(&layout),
        bytes: buffer.len() as u64,
        slot: None,
        times: Some(proto::Times { queued: 5, sampled: 60, gathered: 700 }),
    };
    frames.push((Message::Batch(head), buffer));
    frames
}

fn answered(answer: &Answer) -> (Message, Vec<u8>) {
    let mut body = Vec::new();
    codec::answer_body(answer, &mut body);
    (Message::Answer(codec::answer_head(answer)), body)
}
