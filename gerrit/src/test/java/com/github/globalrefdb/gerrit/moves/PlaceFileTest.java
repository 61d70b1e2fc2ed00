package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import org.eclipse.jgit.lib.Config;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class PlaceFileTest {
  private static final Duration WITHIN = Duration.ofMinutes(6);
  private static final long MINUTE = 60_000;

  @TempDir Path temporary;
  private Path path;

  @BeforeEach
  void setUp() {
    path = temporary.resolve("data/refdb/moves");
  }

  private PlaceFile file() {
    return new PlaceFile(path, Optional.of(WITHIN));
  }

  private Optional<String> loaded() throws IOException {
    return file().load();
  }

  @Test
  void withoutAFileEverythingIsCompared() throws IOException {
    assertEquals(Optional.empty(), loaded());
  }

  @Test
  void aGerritThatHasStoppedGoesOnWhereItWas() throws IOException {
    PlaceFile file = file();
    file.save("p1", 0);
    file.save("p2", 30 * MINUTE);
    file.saveCommitted(Duration.ZERO);
    assertEquals(Optional.of("p2"), loaded());
  }

  @Test
  void itGoesBackByWhatGerritMayNotHaveIndexedOfItsOwn() throws IOException {
    PlaceFile file = file();
    for (int minute = 0; minute <= 20; minute++) {
      file.save("p" + minute, minute * MINUTE);
    }
    file.saveCommitted(Duration.ofMinutes(2));
    assertEquals(Optional.of("p18"), loaded());
  }

  @Test
  void oneThatRanForAMomentGoesBackToWhereItBegan() throws IOException {
    PlaceFile file = file();
    file.save("p1", 0);
    file.save("p2", 1000);
    file.saveCommitted(Duration.ofMinutes(2));
    assertEquals(Optional.of("p1"), loaded());
    PlaceFile next = file();
    next.load();
    next.save("p3", 0);
    next.saveCommitted(Duration.ofMinutes(2));
    assertEquals(Optional.of("p1"), loaded());
  }

  @Test
  void aGerritThatWasKilledGoesBackBehindWhatItsIndexesMayHaveLost() throws IOException {
    PlaceFile file = file();
    for (int minute = 0; minute <= 20; minute++) {
      file.save("p" + minute, minute * MINUTE);
    }
    assertEquals(Optional.of("p14"), loaded());
  }

  @Test
  void oneThatWasKilledBeforeItsFirstCommitComparesEverything() throws IOException {
    PlaceFile file = file();
    file.save("p0", 0);
    file.save("p5", 5 * MINUTE);
    assertEquals(Optional.empty(), loaded());
  }

  @Test
  void oneThatIsKilledAgainGoesBackToTheSamePlace() throws IOException {
    PlaceFile first = file();
    first.save("p0", 0);
    first.save("p6", 6 * MINUTE);
    PlaceFile second = file();
    assertEquals(Optional.of("p0"), second.load());
    second.save("q0", 1_000_000_000); // its clock counts from elsewhere
    second.save("q5", 1_000_000_000 + 5 * MINUTE);
    assertEquals(Optional.of("p0"), loaded());
    second.save("q6", 1_000_000_000 + 6 * MINUTE);
    assertEquals(Optional.of("q0"), loaded());
  }

  @Test
  void whatIsSavedEachMomentKeepsTheFileSmall() throws IOException {
    PlaceFile file = file();
    for (long second = 0; second < 3600; second++) {
      file.save("p" + second, second * 1000);
    }
    int lines = Files.readAllLines(path).size();
    assertTrue(lines < 40, "lines: " + lines);
    int place = Integer.parseInt(loaded().orElseThrow().substring(1));
    assertTrue(place <= 3599 - 360 && place > 3599 - 360 - 40, "place: " + place);
  }

  @Test
  void anIndexThatIsCommittedWhenItIsClosedAloneGoesBackToTheLastStop() throws IOException {
    PlaceFile file = new PlaceFile(path, Optional.empty());
    file.save("p0", 0);
    file.saveCommitted(Duration.ZERO);
    file.save("p1", 0);
    file.save("p2", 1000 * MINUTE);
    assertEquals(Optional.of("p0"), new PlaceFile(path, Optional.empty()).load());
  }

  @Test
  void afterAResetThereIsNoPlace() throws IOException {
    PlaceFile file = file();
    file.save("p1", 0);
    file.saveCommitted(Duration.ZERO);
    file.forget();
    assertEquals(Optional.empty(), loaded());
    file.save("p2", 0);
    assertEquals(Optional.empty(), loaded());
  }

  @Test
  void aFileOfSomebodyElseIsNoPlace() throws IOException {
    Files.createDirectories(path.getParent());
    for (String text : new String[] {"hello\n", "committed \n", "x p1\n", "committed p 1\n"}) {
      Files.writeString(path, text);
      assertThrows(IOException.class, this::loaded, text);
    }
  }

  @Test
  void theLongestCommitIntervalCounts() {
    Config config = new Config();
    assertEquals(Optional.of(Duration.ofMinutes(5)), SavedPlace.commitWithin(config));
    config.setString("index", "groups", "commitWithin", "10 m");
    assertEquals(Optional.of(Duration.ofMinutes(10)), SavedPlace.commitWithin(config));
    config.setString("index", "changes_open", "commitWithin", "-1");
    assertEquals(Optional.empty(), SavedPlace.commitWithin(config));
  }
}
