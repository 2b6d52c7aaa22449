//! Isolation from the network: an empty network namespace. The errors of Python are only guidance;
//! code here bypasses them with `_socket`.

use crate::fixtures::{answer, attempts, engine, said, still_serves, with_prelude};
use crate::harness;
use engine::{Command, Engine, NewSession, SandboxGrants};
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;

/// Listen everywhere on the host, and must never hear anything.
struct Tripwires {
    tcp: TcpListener,
    udp: UdpSocket,
    own: std::net::IpAddr,
}

impl Tripwires {
    fn set() -> Self {
        let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
        let udp = UdpSocket::bind(tcp.local_addr().unwrap()).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        // The address by which others reach this host. Nothing is sent for that.
        let route = UdpSocket::bind("0.0.0.0:0").unwrap();
        let own = route.connect("192.0.2.1:9").and_then(|()| route.local_addr());
        Self { tcp, udp, own: own.map_or([127, 0, 0, 1].into(), |address| address.ip()) }
    }

    fn port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }

    fn heard_nothing(&self) {
        assert_eq!(self.tcp.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(self.udp.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    fn can_hear(&self) {
        std::net::TcpStream::connect((self.own, self.port())).unwrap();
        UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"x", (self.own, self.port())).unwrap();
        self.tcp.set_nonblocking(false).unwrap();
        self.udp.set_nonblocking(false).unwrap();
        assert!(self.tcp.accept().is_ok() && self.udp.recv(&mut [0; 9]).is_ok());
    }
}

const LOOK: &str = "
net = lambda name: open('/proc/self/net/' + name).read().strip().splitlines()
print([line.split(':')[0].strip() for line in net('dev')[2:]])
print(net('route')[1:], [line for line in net('ipv6_route') if line.split()[-1] != 'lo'])
print(os.path.exists('/etc/resolv.conf'), os.path.exists('/sys/class/net'))
print({line.split()[-1] for line in net('if_inet6')}, net('arp')[1:])";
const EMPTY: &str = "['lo']\n[] []\nFalse False\n{'lo'} []";

/// Every way to send something, to every address where a peer could be.
fn knocks(tripwires: &Tripwires) -> String {
    let (own, port) = (tripwires.own, tripwires.port());
    format!(
        "
tried = set()
for host in ['{own}', '127.0.0.1', '0.0.0.0', '169.254.169.254', '224.0.0.1', '255.255.255.255', '10.0.0.1',
             '172.17.0.1', '192.168.0.1', '198.18.0.1', '8.8.8.8']:
    for port in ({port}, 53, 443):
        udp = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        udp.setsockopt(_socket.SOL_SOCKET, _socket.SO_BROADCAST, 1)
        tried.add(outcome(lambda: _socket.socket(_socket.AF_INET).connect((host, port))))
        tried.add(outcome(lambda: udp.sendto(b'x', (host, port))))
for host in ['::ffff:{own}', '2606:4700:4700::1111', 'fe80::1', 'ff02::1', 'fd00::1']:
    tried.add(outcome(lambda: _socket.socket(_socket.AF_INET6).connect((host, {port}))))
    tried.add(outcome(lambda: _socket.socket(_socket.AF_INET6, _socket.SOCK_DGRAM).sendto(b'x', (host, {port}))))
print(sorted(tried - {{'ok', 'ECONNREFUSED', 'ENETUNREACH', 'EADDRNOTAVAIL', 'EINVAL', 'EACCES'}}), len(tried) > 2)"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn t37_netns_is_empty() {
    let (engine, tripwires) = (engine(), Tripwires::set());
    assert_eq!(answer(&engine, LOOK).await, EMPTY);
    assert_eq!(answer(&engine, &knocks(&tripwires)).await, "[] True");
    tripwires.heard_nothing();
    tripwires.can_hear();
    let table = [
        ("_socket.socket(_socket.AF_INET, _socket.SOCK_RAW, 1)", "EPERM"),
        ("_socket.socket(_socket.AF_INET, _socket.SOCK_RAW, 255)", "EPERM"),
        ("_socket.socket(_socket.AF_INET6, _socket.SOCK_RAW, 58)", "EPERM"),
        // The ping that needs no privilege.
        ("_socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM, 1)", "EPROTONOSUPPORT"),
        ("_socket.socket(_socket.AF_INET6, _socket.SOCK_DGRAM, 58)", "EPROTONOSUPPORT"),
        // SCTP, DCCP, UDP-Lite, MPTCP.
        ("_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 132)", "EPROTONOSUPPORT"),
        ("_socket.socket(_socket.AF_INET, 6, 33)", "EPERM"),
        ("_socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM, 136)", "EPROTONOSUPPORT"),
        ("_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 262)", "EPROTONOSUPPORT"),
        ("_socket.socket(_socket.AF_PACKET, _socket.SOCK_RAW)", "EAFNOSUPPORT"),
        ("_socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW)", "EAFNOSUPPORT"),
        ("_socket.socket(_socket.AF_VSOCK, _socket.SOCK_STREAM)", "EAFNOSUPPORT"),
        ("_socket.socket(38, _socket.SOCK_SEQPACKET)", "EAFNOSUPPORT"),
        ("_socket.socket(44, _socket.SOCK_RAW)", "EAFNOSUPPORT"),
        ("_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)", "ok"),
        ("_socket.socket(_socket.AF_INET6, _socket.SOCK_DGRAM)", "ok"),
        ("_socket.socketpair()", "ok"),
    ];
    attempts(&engine, &table).await;
    still_serves(&engine).await;
}

/// A proxy that sends its name to each client.
fn named(name: &'static str) -> SandboxGrants {
    harness::egress(move |listener| {
        listener.set_nonblocking(false).unwrap();
        let ours = listener.try_clone().unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = ours.accept() {
                let _ = stream.write_all(name.as_bytes());
            }
        });
        Box::new(Shut(listener))
    })
}

/// Wakes the task that waits for it.
struct Shut(TcpListener);

impl Drop for Shut {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

async fn with_egress(engine: &Arc<Engine>, grants: SandboxGrants, code: &str) -> String {
    let code = with_prelude(code);
    let command = Command { grants, ..harness::command("bare", &code) };
    said(&harness::run_with(engine, command).await.execution)
}

#[tokio::test(flavor = "multi_thread")]
async fn t37_egress_opens_one_port_of_loopback_and_nothing_else() {
    let (engine, tripwires) = (engine(), Tripwires::set());
    assert_eq!(with_egress(&engine, named("a"), LOOK).await, EMPTY);
    assert_eq!(with_egress(&engine, named("a"), &knocks(&tripwires)).await, "[] True");
    tripwires.heard_nothing();
    let open = "
def is_open(port):
    caller = _socket.socket()
    # A socket can meet itself, by the port that it was given to call from.
    return caller.connect_ex(('127.0.0.1', port)) == 0 and caller.getsockname()[1] != port
print([port for port in range(1, 65536) if is_open(port)])
print([number for number in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{number}')
       and 'socket' in os.readlink(f'/proc/self/fd/{number}') and number != '3'])";
    assert_eq!(with_egress(&engine, named("a"), open).await, "[3128]\n[]");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_finds_its_own_proxy_socket_and_no_other() {
    let engine = engine();
    let code = "
import time
heard = set()
for _ in range(20):
    for host in ('127.0.0.1', '127.0.0.2', '0.0.0.0', '::ffff:127.0.0.1'):
        family = _socket.AF_INET6 if ':' in host else _socket.AF_INET
        caller = _socket.socket(family)
        if caller.connect_ex((host, 3128)) == 0:
            heard.add(caller.recv(9).decode())
    time.sleep(0.02)
print(heard)";
    let (a, b, none) = tokio::join!(
        with_egress(&engine, named("a"), code),
        with_egress(&engine, named("b"), code),
        answer(&engine, code),
    );
    assert_eq!((a.as_str(), b.as_str(), none.as_str()), ("{'a'}", "{'b'}", "set()"));
}

/// Code in a session has the grants of the session: a command with its own grants would
/// leave values and connections behind for all who use the session.
#[tokio::test(flavor = "multi_thread")]
async fn t182_a_command_brings_no_grants_into_a_session() {
    let engine = engine();
    let own = harness::variables([("OWN", "of the session")]);
    let session = NewSession { grants: own, ..NewSession::new("bare") };
    let session = engine.open(session).await.unwrap().id;
    let code = "
import os
print(os.environ.get('OWN'), os.environ.get('BROUGHT'))
print(_socket.socket().connect_ex(('127.0.0.1', 3128)) == 0)";
    let brought = [named("a"), harness::variables([("BROUGHT", "along")])];
    for grants in brought.clone() {
        let command = harness::command("bare", &with_prelude(code));
        let command = Command { session: Some(session), grants, ..command };
        let error = engine.admit(command).await.unwrap_err();
        assert_eq!(error.code.to_string(), "args.invalid");
    }
    let command = harness::command("bare", &with_prelude(code));
    let bare = Command { session: Some(session), ..command };
    let ran = harness::run_with(&engine, bare).await.execution;
    assert_eq!(said(&ran), "of the session None\nFalse");
    let [egress, variables] = brought;
    let both = SandboxGrants { variables: variables.variables, ..egress };
    assert_eq!(with_egress(&engine, both, code).await, "None along\nTrue");
}
