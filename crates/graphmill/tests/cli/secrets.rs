//! Tokens and keys: who can read their files, and where they never show.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Child;
use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Remote};
use graphmill_net::Token;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::Workplace;

const TOKEN: &str = "sesame-0123456789-sesame";

/// Starts a server that says all it can, and waits until it listens; gives its address.
fn serve(place: &Workplace, flags: &str, environment: &[(&str, &str)]) -> (Child, String) {
    let socket = place.path("s.sock");
    let mut command = place.command(&format!("serve g --listen unix:{} {flags}", socket.display()));
    command.env("GRAPHMILL_LOG", "trace").envs(environment.iter().copied());
    // To files: a pipe that nobody reads would hold it up.
    let file = |name: &str| File::create(place.path(name)).unwrap();
    let child = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !socket.exists() {
        assert!(Instant::now() < deadline, "it does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    (child, format!("unix:{}", socket.display()))
}

#[test]
fn a_token_shows_in_no_log_no_error_and_no_list_of_processes_however_it_was_given() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    place.write("token", &format!("{TOKEN}\n"));
    place.write("serve.toml", "token_file = \"token\"\n");
    place.write("other", "barley-0123456789-barley\n");
    let ways: [(&str, &[(&str, &str)]); 4] = [
        ("--token-file token", &[]),
        ("", &[("GRAPHMILL_TOKEN_FILE", "token")]),
        ("--config serve.toml", &[]),
        ("--token-file token --log json --coordinator", &[]),
    ];
    for (flags, environment) in ways {
        let (mut child, address) = serve(&place, flags, environment);
        let connect = |token: Option<&str>| {
            let token = token.map(|token| Token::new(token).unwrap());
            let options = ConnectOptions { token, deadline: Duration::from_secs(10), ..ConnectOptions::default() };
            Remote::connect(&[address.parse().unwrap()], options)
        };
        connect(Some(TOKEN)).unwrap();
        for (token, words) in [(Some("barley-0123456789-barley"), "token"), (None, "token")] {
            let error = connect(token).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(words) && !text.contains("sesame") && !text.contains("barley"), "{text}");
        }
        let said = place.run(&format!("status {address} --token-file token"));
        let wrong = place.run(&format!("status {address} --token-file other --deadline 1"));
        assert_eq!((said.code, wrong.code), (Some(0), Some(1)), "{said:#?} {wrong:#?}");
        let seen = ["cmdline", "environ"].map(|file| {
            let bytes = std::fs::read(format!("/proc/{}/{file}", child.id())).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let [out, err] = ["out", "err"].map(|name| std::fs::read_to_string(place.path(name)).unwrap());
        assert!(err.lines().count() > 5, "it says all it can: {err}");
        let texts = [&out, &err, &seen[0], &seen[1], &said.stdout, &said.stderr, &wrong.stdout, &wrong.stderr];
        for text in texts {
            assert!(!text.contains("sesame") && !text.contains("barley"), "{flags}: {text}");
        }
    }
}

#[test]
fn a_token_that_others_can_read_is_refused_with_its_mode_by_servers_and_clients() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    place.write("token", TOKEN);
    for (mode, who) in [(0o640, "its group"), (0o644, "everyone")] {
        std::fs::set_permissions(place.path("token"), Permissions::from_mode(mode)).unwrap();
        for line in [
            "serve g --listen 127.0.0.1:0 --token-file token",
            "rendezvous serve --listen 127.0.0.1:0 --token-file token",
            "objects serve --listen 127.0.0.1:0 --token-file token",
            "status 127.0.0.1:1 --token-file token --deadline 1",
        ] {
            let refused = place.fail(line);
            let words = format!("token: it is a secret that {who} can read (mode 0{mode:o}); run chmod 600 on it");
            assert!(refused.contains(&words) && !refused.contains("sesame"), "{line}: {refused}");
        }
    }
}

#[test]
fn a_key_that_others_can_read_is_refused_before_it_is_looked_at() {
    let place = Workplace::new();
    place.succeed("generate karate --out g");
    let key = rcgen::KeyPair::generate().unwrap();
    let cert = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    place.write("cert.pem", &cert.pem());
    place.write("key.pem", &key.serialize_pem());
    std::fs::set_permissions(place.path("key.pem"), Permissions::from_mode(0o640)).unwrap();
    let refused = place.fail("serve g --listen 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem");
    assert!(refused.contains("key.pem: it is a secret that its group can read (mode 0640)"), "{refused}");
}
