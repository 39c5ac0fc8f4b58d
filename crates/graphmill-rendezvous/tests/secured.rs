//! etcd behind TLS, certificates and passwords.

#[path = "serving/authority.rs"]
#[allow(unreachable_pub)]
mod authority;
mod etcd;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use authority::Authority;
use graphmill_rendezvous::etcd::{Etcd, EtcdUrl, Leader};

const LONG: Duration = Duration::from_secs(30);

/// Runs etcd's own tool as somebody; it must succeed.
fn etcdctl(nodes: &etcd::Nodes, authority: &Authority, login: &[&str], arguments: &[&str]) {
    let (cert, key) = authority.issue("tool");
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").arg("--endpoints").arg(format!("https://{}", nodes.addresses()));
    command.arg("--cacert").arg(authority.path()).arg("--cert").arg(cert).arg("--key").arg(key);
    let ended = command.args(login).args(arguments).output().unwrap();
    assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// Who leads, as somebody sees it who wants to; or why it cannot be known.
async fn leads(url: &EtcdUrl) -> Result<(), String> {
    let etcd = Etcd::open(url, "secured").map_err(|error| error.to_string())?;
    etcd.leader().await.map_err(|error| error.to_string())?;
    let mut leader = etcd.campaign("here".to_owned());
    let here = leader.wait_for(|leader| matches!(leader, Leader::Here(_)));
    match tokio::time::timeout(LONG, here).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err("it does not come to lead".to_owned()),
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_shows_a_certificate_and_knows_the_password_leads() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (cert, key) = ours.issue("127.0.0.1");
    let Some(nodes) = etcd::Nodes::start_secured(&cert, &key, &ours.path()) else { return };
    if Command::new("etcdctl").arg("version").env("ETCDCTL_API", "3").output().is_err() {
        eprintln!("skipped: etcdctl is not installed (Debian's package is etcd-client)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (right, wrong) = (folder.path().join("right"), folder.path().join("wrong"));
    write(&right, "open-sesame\n");
    write(&wrong, "open-tahini\n");
    let with = |trusted: &Authority, identity: Option<&Authority>, password: Option<&Path>| EtcdUrl {
        nodes: vec![nodes.addresses()],
        ca: Some(trusted.path()),
        identity: identity.map(|authority| authority.issue("member")),
        login: password.map(|path| ("graphmill".to_owned(), path.to_owned())),
        ..EtcdUrl::default()
    };
    let began = std::time::Instant::now();
    while leads(&with(&ours, Some(&ours), None)).await.is_err() {
        assert!(began.elapsed() < LONG, "etcd does not begin");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for (trusted, identity) in [(&theirs, Some(&ours)), (&ours, None), (&ours, Some(&theirs))] {
        let refused = leads(&with(trusted, identity, None)).await.unwrap_err();
        assert!(refused.contains("no node of it answers"), "{refused}");
    }

    etcdctl(&nodes, &ours, &[], &["user", "add", "root:root-secret"]);
    etcdctl(&nodes, &ours, &[], &["user", "grant-role", "root", "root"]);
    etcdctl(&nodes, &ours, &[], &["user", "add", "graphmill:open-sesame"]);
    etcdctl(&nodes, &ours, &[], &["role", "add", "coordinator"]);
    etcdctl(&nodes, &ours, &[], &["role", "grant-permission", "coordinator", "readwrite", "--prefix=true", "secured/"]);
    etcdctl(&nodes, &ours, &[], &["user", "grant-role", "graphmill", "coordinator"]);
    etcdctl(&nodes, &ours, &[], &["auth", "enable"]);
    leads(&with(&ours, Some(&ours), Some(&right))).await.unwrap();
    let refused = leads(&with(&ours, Some(&ours), Some(&wrong))).await.unwrap_err();
    assert!(refused.contains("cannot log in as `graphmill`") && !refused.contains("tahini"), "{refused}");
    let refused = leads(&with(&ours, Some(&ours), None)).await.unwrap_err();
    assert!(refused.contains("etcdserver"), "{refused}");

    // Users change while a coordinator is logged in: it logs in again.
    let etcd = Etcd::open(&with(&ours, Some(&ours), Some(&right)), "secured").unwrap();
    etcd.leader().await.unwrap();
    etcdctl(&nodes, &ours, &["--user", "root:root-secret"], &["user", "add", "another:word"]);
    etcd.leader().await.unwrap();
    assert!(Etcd::open(&with(&ours, None, Some(Path::new("/no/such/file"))), "p").is_err());
}
