//! Reads a line from the terminal without echo.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, Read, Write};

const INTERRUPT: u8 = 3;
const END: u8 = 4;
const BACKSPACES: [u8; 2] = [8, 127];

/// Restores the terminal settings on drop, also after an error.
struct EchoGuard {
    before: Termios,
}

impl EchoGuard {
    /// Disables echo, and signals as well: a signal that ends the program would leave the terminal
    /// without echo.
    fn disable_echo() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        Ok(Self { before })
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        // There is no way to report or handle an error here.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        eprintln!();
    }
}

pub(super) fn read_hidden(question: &str) -> io::Result<Vec<u8>> {
    let _quiet = EchoGuard::disable_echo()?;
    eprint!("{question}");
    io::stderr().flush()?;
    let mut line = Vec::new();
    for byte in io::stdin().lock().bytes() {
        match byte? {
            b'\n' | b'\r' | END => break,
            INTERRUPT => return Err(io::ErrorKind::Interrupted.into()),
            byte if BACKSPACES.contains(&byte) => drop_last(&mut line),
            byte => line.push(byte),
        }
    }
    Ok(line)
}

/// Removes the last character, which may have several bytes.
fn drop_last(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {}
}
