"""Names of the tasks of each suite, known without installing the suite."""

__all__ = [
    'ATARI',
    'ATARI100K',
    'BRAX',
    'BSUITE',
    'CRAFTAX',
    'CRAFTER',
    'DMC',
    'DMLAB',
    'ENVPOOL',
    'GYM',
    'GYMNAX',
    'MEMORY_MAZE',
    'MINECRAFT',
    'MINIGRID',
    'NAVIX',
    'OWN',
    'PLAYGROUND',
    'PROCGEN',
]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# The games of the Arcade Learning Environment that one player can play.
ATARI = _names(
    """
    adventure air_raid alien amidar assault asterix asteroids atlantis atlantis2
    backgammon bank_heist basic_math battle_zone beam_rider berzerk blackjack bowling
    boxing breakout carnival casino centipede chopper_command crazy_climber crossbow
    darkchambers defender demon_attack donkey_kong double_dunk earthworld
    elevator_action enduro entombed et fishing_derby flag_capture freeway frogger
    frostbite galaxian gopher gravitar hangman haunted_house hero human_cannonball
    ice_hockey jamesbond journey_escape kaboom kangaroo keystone_kapers king_kong klax
    koolaid krull kung_fu_master laser_gates lost_luggage mario_bros miniature_golf
    montezuma_revenge mr_do ms_pacman name_this_game othello pacman phoenix pitfall
    pitfall2 pong pooyan private_eye qbert riverraid road_runner robotank seaquest
    sir_lancelot skiing solaris space_invaders space_war star_gunner superman surround
    tennis tetris tic_tac_toe_3d time_pilot trondead turmoil tutankham up_n_down
    venture video_checkers video_chess video_cube video_pinball wizard_of_wor
    word_zapper yars_revenge zaxxon
    """
)

ATARI100K = _names(
    """
    alien amidar assault asterix bank_heist battle_zone boxing breakout
    chopper_command crazy_climber demon_attack freeway frostbite gopher hero jamesbond
    kangaroo krull kung_fu_master ms_pacman pong private_eye qbert road_runner seaquest
    up_n_down
    """
)

CRAFTER = ('reward', 'noreward')

DMC = _names(
    """
    acrobot_swingup acrobot_swingup_sparse ball_in_cup_catch cartpole_balance
    cartpole_balance_sparse cartpole_swingup cartpole_swingup_sparse
    cartpole_three_poles cartpole_two_poles cheetah_run dog_fetch dog_run dog_stand
    dog_trot dog_walk finger_spin finger_turn_easy finger_turn_hard fish_swim
    fish_upright hopper_hop hopper_stand humanoid_CMU_run humanoid_CMU_stand
    humanoid_CMU_walk humanoid_run humanoid_run_pure_state humanoid_stand humanoid_walk
    lqr_lqr_2_1 lqr_lqr_6_2 manipulator_bring_ball manipulator_bring_peg
    manipulator_insert_ball manipulator_insert_peg pendulum_swingup point_mass_easy
    point_mass_hard quadruped_escape quadruped_fetch quadruped_run quadruped_walk
    reacher_easy reacher_hard stacker_stack_2 stacker_stack_4 swimmer_swimmer15
    swimmer_swimmer6 walker_run walker_stand walker_walk
    """
)

GYM = ('<id of any Gymnasium environment>',)

OWN = ('<module>:<function that makes an environment>',)

MINIGRID = ('<id of a MiniGrid environment after "MiniGrid-", such as Empty-5x5-v0>',)

MEMORY_MAZE = ('9x9', '11x11', '13x13', '15x15')

BSUITE = ('<experiment>/<number>, such as catch/0',)

PROCGEN = _names(
    """
    bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot heist jumper
    leaper maze miner ninja plunder starpilot
    """
)

DMLAB = _names(
    """
    explore_goal_locations_large explore_goal_locations_small
    explore_object_locations_large explore_object_locations_small
    explore_object_rewards_few explore_object_rewards_many
    explore_obstructed_goals_large explore_obstructed_goals_small
    lasertag_one_opponent_large lasertag_one_opponent_small
    lasertag_three_opponents_large lasertag_three_opponents_small
    natlab_fixed_large_map natlab_varying_map_randomized
    natlab_varying_map_regrowth psychlab_arbitrary_visuomotor_mapping
    psychlab_continuous_recognition psychlab_sequential_comparison
    psychlab_visual_search rooms_collect_good_objects_train
    rooms_exploit_deferred_effects_train rooms_keys_doors_puzzle
    rooms_select_nonmatching_object rooms_watermaze
    skymaze_irreversible_path_hard skymaze_irreversible_path_varied
    """
)

MINECRAFT = ('diamond',)

ENVPOOL = ('<id of an environment of EnvPool, such as Pong-v5>',)

GYMNAX = ('<id of an environment of gymnax, such as CartPole-v1>',)

CRAFTAX = ('symbolic', 'pixels', 'classic-symbolic', 'classic-pixels')

NAVIX = ('<id of an environment of navix after "Navix-", such as Empty-5x5-v0>',)

BRAX = ('<name of an environment of Brax, such as ant>',)

PLAYGROUND = ('<name of an environment of MuJoCo Playground, such as WalkerWalk>',)
