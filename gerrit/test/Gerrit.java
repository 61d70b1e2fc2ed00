import java.util.Arrays;

/** Runs a program of Gerrit's, as its WAR does. */
public final class Gerrit {
  public static void main(String[] args) throws Exception {
    String[] rest = Arrays.copyOfRange(args, 1, args.length);
    int status = switch (args[0]) {
      case "init" -> new com.google.gerrit.pgm.Init().main(rest);
      case "daemon" -> new com.google.gerrit.pgm.Daemon().main(rest);
      case "reindex" -> new com.google.gerrit.pgm.Reindex().main(rest);
      default -> throw new IllegalArgumentException(args[0]);
    };
    System.exit(status);
  }
}
