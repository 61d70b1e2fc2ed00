package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gerrit.server.config.SitePaths;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import org.eclipse.jgit.lib.Config;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SavedPlaceTest {
  @TempDir Path site;
  private Path moves;
  private final Config config = new Config();

  @BeforeEach
  void setUp() throws Exception {
    moves = Files.createDirectories(site.resolve("data/refdb")).resolve("moves");
    Files.writeString(moves, "committed p0\n");
  }

  private SavedPlace place() throws Exception {
    return new SavedPlace(new SitePaths(site), config);
  }

  /** A server that stops in order saves its place. */
  private static void stop(SavedPlace place) throws Exception {
    Pending pending = new Pending(() -> 0);
    pending.add("p1", List.of());
    place.stopped(pending);
    place.stop();
  }

  @Test
  void aServerGoesOnAtThePlaceAndSavesIt() throws Exception {
    SavedPlace place = place();
    assertEquals(Optional.of("p0"), place.file().get().load());
    stop(place);
    assertEquals("committed p0\n", Files.readString(moves), "a minute before the end");
  }

  /** The guard of an earlier process may have been killed, or disabled. */
  @Test
  void whatAnEarlierProcessCouldNotReadIsNotShown() throws Exception {
    Path file = Files.writeString(site.resolve("data/refdb/without-repository"), "team/app\n");
    place().start();
    assertTrue(Files.notExists(file));
  }

  /** When it is promoted, the next server must compare the indexes that the replica did not have. */
  @Test
  void aReplicaForgetsThePlaceAndSavesNone() throws Exception {
    config.setBoolean("container", null, "replica", true);
    SavedPlace place = place();
    assertEquals(Optional.empty(), place.file());
    assertTrue(Files.notExists(moves));
    stop(place);
    assertTrue(Files.notExists(moves));
  }
}
