//! A headless Chromium, driven by ChromeDriver over HTTP.

use crate::Result;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

/// A running ChromeDriver with one window. Both end when this is dropped.
pub(super) struct Browser {
    driver: Child,
    /// The driver's output, which stays open, because the driver would end when it writes to a closed one.
    _output: BufReader<ChildStdout>,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts the browser with an empty profile in `profile`, and saves downloads in `downloads`.
    pub(super) fn start(profile: &Path, downloads: &Path) -> Result<Self> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("chromedriver: {e}"))?;
        let out = driver.stdout.take().ok_or("chromedriver has no output")?;
        let mut output = BufReader::new(out);
        let lines = output.by_ref().lines().map_while(std::io::Result::ok);
        let told = lines
            .filter(|line| line.contains("successfully"))
            .find_map(|line| line.split_once("on port ")?.1.trim_end_matches('.').parse().ok());
        let mut browser = Self {
            driver,
            _output: output,
            port: told.ok_or("chromedriver named no port")?,
            session: String::new(),
        };
        let profile = format!("--user-data-dir={}", profile.display());
        let options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            &profile,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": options},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let begun = browser.send("POST", "/session", &wanted)?;
        browser.session = begun["sessionId"].as_str().ok_or("no session")?.to_owned();
        browser.devtools(
            "Browser.setDownloadBehavior",
            &json!({"behavior": "allow", "downloadPath": downloads}),
        )?;
        Ok(browser)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let body = if method == "POST" {
            body.to_string()
        } else {
            String::new()
        };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )?;
        // The driver does not close the connection, so the header says where the answer ends.
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            if answer.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body)?;
        let mut answer: Value = serde_json::from_slice(&body)?;
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("{path}: {error}: {}", answer["value"]["message"]).into()),
            None => Ok(answer["value"].take()),
        }
    }

    fn command(&self, path: &str, body: &Value) -> Result<Value> {
        self.send("POST", &format!("/session/{}/{path}", self.session), body)
    }

    fn devtools(&self, name: &str, parameters: &Value) -> Result<Value> {
        self.command("goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
    }

    /// Sets the size of the window, and the colour scheme that the browser tells the page.
    pub(super) fn look(&self, width: u32, height: u32, theme: &str) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.devtools("Emulation.setDeviceMetricsOverride", &size)?;
        let theme = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.devtools("Emulation.setEmulatedMedia", &theme)?;
        Ok(())
    }

    /// Opens a file.
    pub(super) fn open(&self, page: &Path) -> Result<()> {
        let address = format!("file://{}", page.canonicalize()?.display());
        self.command("url", &json!({"url": address}))?;
        Ok(())
    }

    /// Runs a script in the page and returns its result.
    pub(super) fn run(&self, script: &str) -> Result<Value> {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits for this time, in which the page continues.
    pub(super) fn pause(&self, milliseconds: u32) -> Result<()> {
        let script = format!("setTimeout(arguments[0], {milliseconds})");
        self.command("execute/async", &json!({"script": script, "args": []}))?;
        Ok(())
    }

    /// Presses a key, by its code in the WebDriver standard.
    pub(super) fn press(&self, key: char) -> Result<()> {
        let strokes = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        self.command(
            "actions",
            &json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]}),
        )?;
        Ok(())
    }

    /// Moves the pointer to a place of the window.
    pub(super) fn point_at(&self, x: i64, y: i64) -> Result<()> {
        let moves = json!([{"type": "pointerMove", "duration": 0, "x": x, "y": y}]);
        self.command(
            "actions",
            &json!({"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]}),
        )?;
        Ok(())
    }

    /// Returns the errors and warnings on the page's console since the last call.
    pub(super) fn console(&self) -> Result<Vec<String>> {
        let lines = self.command("se/log", &json!({"type": "browser"}))?;
        let lines = lines.as_array().cloned().unwrap_or_default().into_iter();
        Ok(lines
            .filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING")
            .map(|line| format!("console: {}", line["message"].as_str().unwrap_or_default()))
            .collect())
    }

    /// Takes a picture of the window, as PNG.
    pub(super) fn picture(&self) -> Result<Vec<u8>> {
        let path = format!("/session/{}/screenshot", self.session);
        let picture = self.send("GET", &path, &Value::Null)?;
        Ok(BASE64_STANDARD.decode(picture.as_str().ok_or("no picture")?)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session. If it does not answer, it ends with the driver.
        let _ended = self.send("DELETE", &format!("/session/{}", self.session), &Value::Null);
        let _killed = self.driver.kill();
        let _waited = self.driver.wait();
    }
}
