//! The service manager is told about the state of the process (`NOTIFY_SOCKET`).

use std::os::unix::net::UnixDatagram;

use super::CONFIG;
use super::support::TIMEOUT;
use super::support::gateway::Gateway;
use super::support::origin::Origin;
use super::support::site::with_long_timeouts;

#[test]
fn the_service_manager_is_told_of_the_start_a_reload_and_the_shutdown() {
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let path = directory.path().join("notify.sock");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let received = || {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).expect("a notification");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let environment = [("NOTIFY_SOCKET", path.display().to_string())];
    let config = with_long_timeouts(CONFIG);
    let gateway = Gateway::try_start_in(&environment, directory.path(), origin.address, &config, &[])
        .expect("a gateway");
    assert_eq!(received(), "READY=1\n");
    gateway.reload();
    let reloading = received();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(received(), "READY=1\n");
    gateway.signal("TERM");
    assert_eq!(received(), "STOPPING=1\n");
    gateway.wait_for_exit();
}
