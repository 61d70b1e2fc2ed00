import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Opens a page in a headless Chromium, and waits until it shows some texts. Usage: java Page.java CHROMIUM DIRECTORY SECONDS URL
 * TEXT...: the directory, an empty one, is Chromium's. It exits with 1 if a text is missing in the end, and prints what the page shows.
 */
public class Page {
  /** All text of the document, also in shadow roots, of which Gerrit's page is made. */
  private static final String SHOWN =
      "(function shown(n) {"
          + " if (n.nodeType === 3) return n.data;"
          + " if (n.localName === 'style' || n.localName === 'script') return '';"
          + " return [...(n.shadowRoot ? [n.shadowRoot] : []), ...n.childNodes].map(shown).join(' ');"
          + "})(document).split(/[^!-~]+/).join(' ')";

  public static void main(String[] args) throws Exception {
    Path directory = Path.of(args[1]);
    List<String> wanted = List.of(args).subList(4, args.length);
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(args[2]));
    Path log = directory.resolve("log");
    Process chromium =
        new ProcessBuilder(args[0], "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--remote-debugging-port=0", "--user-data-dir=" + directory, "--window-size=1400,2000", args[3])
            .redirectErrorStream(true)
            .redirectOutput(log.toFile())
            .start();
    String shown = "";
    try {
      while (System.nanoTime() < deadline && !wanted.stream().allMatch(shown::contains)) {
        Thread.sleep(500);
        if (!chromium.isAlive()) {
          throw new IOException("Chromium has ended: " + Files.readString(log));
        }
        shown = evaluate(directory, SHOWN);
      }
    } finally {
      chromium.descendants().forEach(ProcessHandle::destroyForcibly);
      chromium.destroyForcibly().waitFor();
    }
    if (!wanted.stream().allMatch(shown::contains)) {
      System.out.println(shown);
      System.exit(1);
    }
  }

  /** What an expression is in the page, by the DevTools protocol; as JSON has it. Empty if Chromium does not answer yet. */
  private static String evaluate(Path directory, String expression) throws Exception {
    Path port = directory.resolve("DevToolsActivePort"); // its first line
    if (!Files.exists(port) || Files.size(port) == 0) {
      return "";
    }
    HttpClient client = HttpClient.newHttpClient();
    HttpRequest list = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + Files.readAllLines(port).get(0) + "/json/list")).build();
    Matcher page =
        Pattern.compile("\"type\": *\"page\".*?\"webSocketDebuggerUrl\": *\"([^\"]+)\"", Pattern.DOTALL)
            .matcher(client.send(list, BodyHandlers.ofString()).body());
    if (!page.find()) {
      return "";
    }
    BlockingQueue<String> answers = new LinkedBlockingQueue<>();
    WebSocket socket = client.newWebSocketBuilder().buildAsync(URI.create(page.group(1)), listener(answers)).get(10, TimeUnit.MINUTES);
    String quoted = expression.replace("\\", "\\\\").replace("\"", "\\\"");
    socket.sendText("{\"id\":1,\"method\":\"Runtime.evaluate\",\"params\":{\"returnByValue\":true,\"expression\":\"" + quoted + "\"}}", true);
    String answer = answers.poll(1, TimeUnit.MINUTES);
    socket.abort();
    return answer == null ? "" : answer;
  }

  private static WebSocket.Listener listener(BlockingQueue<String> answers) {
    StringBuilder text = new StringBuilder();
    return new WebSocket.Listener() {
      @Override
      public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean last) {
        text.append(data);
        if (last) {
          answers.add(text.toString());
          text.setLength(0);
        }
        socket.request(1);
        return null;
      }
    };
  }
}
